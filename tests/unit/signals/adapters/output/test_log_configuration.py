"""Files for -l: logback levels translated, Python configurations applied, the rest reported."""

import logging
import pathlib
import re

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.signals.adapters.output.log_configuration import apply_python, read_log_configuration

ROOT = pathlib.Path(__file__).resolve().parents[5]
LOGBACK = """<configuration scan="true">
  <property name="level" value="${KCL_LEVEL:-warn}"/>
  <appender name="STDOUT" class="ch.qos.logback.core.ConsoleAppender"><encoder/></appender>
  <logger name="software.amazon.kinesis" level="debug"/>
  <logger name="software.amazon.awssdk.http"><level value="ERROR"/></logger>
  <logger name="io.netty" level="OFF"/>
  <logger name="mld.aws" level="TRACE"/>
  <logger name="com.example" level="DEBUG"/>
  <logger name="org.apache.http"/>
  <logger name="software.amazon.kinesis.multilang" level="INHERITED"/>
  <statusListener class="x"/>
  <root level="${level}"><appender-ref ref="STDOUT"/></root>
</configuration>"""


def read(tmp_path, text):
    path = tmp_path / "log"
    path.write_text(text)
    return read_log_configuration(str(path))


def test_levels_of_a_logback_file_are_taken(tmp_path):
    found = read(tmp_path, LOGBACK)
    assert found.level == "WARNING"
    assert found.levels == (
        ("mld", "DEBUG"),
        ("botocore", "ERROR"),
        ("urllib3", "CRITICAL"),
        ("mld.aws", "DEBUG"),
    )
    assert found.python is None


def test_what_is_not_taken_is_reported(tmp_path):
    assert read(tmp_path, LOGBACK).warnings == (
        "appender STDOUT is left out: kcl-mld logs to stderr",
        "logger com.example has no counterpart and is left out",
        "<statusListener> is left out",
    )


def test_variables_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KCL_LEVEL", "ERROR")
    assert read(tmp_path, LOGBACK).level == "ERROR"


@pytest.mark.parametrize("level", ["LOUD", "${NOWHERE_SET}"])
def test_an_unknown_level_is_debug_as_in_logback(tmp_path, level):
    found = read(tmp_path, f'<configuration><root level="{level}"/></configuration>')
    assert found.level == "DEBUG"
    assert "is unknown" in found.warnings[0]


def test_a_root_without_a_level_leaves_it_alone(tmp_path):
    assert read(tmp_path, "<configuration><root/></configuration>").level is None


def test_a_python_configuration_is_handed_on_and_keeps_loggers(tmp_path, restored_logging):
    found = read(tmp_path, ' {"version": 1, "loggers": {"mld.probe": {"level": "ERROR"}}}')
    assert found.python["disable_existing_loggers"] is False
    apply_python(found.python)
    assert logging.getLogger("mld.probe").level == logging.ERROR


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<configuration>", "no element found"),
        ("<log/>", "<log> is not the <configuration> of a logback file"),
        ("{", "Expecting property name"),
        ('{"version": 2}', 'needs "version": 1'),
        ("rootLogger=INFO", "not well-formed"),
    ],
)
def test_another_file_is_refused_in_javas_words(tmp_path, text, why):
    with pytest.raises(
        ConfigError, match=r"^Error while loading log configuration: .*log: "
    ) as caught:
        read(tmp_path, text)
    assert why in str(caught.value)


def test_a_missing_file_is_named_in_javas_words():
    text = r"^Error while loading log configuration: nolog\.xml \(No such file or directory\)$"
    with pytest.raises(ConfigError, match=text):
        read_log_configuration("nolog.xml")


def test_an_unreadable_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"\(Is a directory\)$"):
        read_log_configuration(str(tmp_path))


def test_a_python_configuration_that_makes_no_sense_is_refused():
    with pytest.raises(ConfigError, match=r"^Error while loading log configuration: "):
        apply_python({"version": 1, "handlers": {"x": {"class": "no.such.Handler"}}})


@pytest.mark.parametrize(
    ("named", "meant"),
    [
        ("mld", "mld"),
        ("mld.leases", "mld.leases"),
        ("mld.leases.lease_taker", "mld.leases"),
        ("mld.services", "mld"),
        ("mld.services.leases.lease_taker", "mld.leases"),
        ("mld.services.consuming.shard_consumer", "mld.children"),
        ("mld.services.child", "mld.children"),
        ("mld.services.scheduler", "mld.app"),
        ("mld.adapters.aws", "mld.aws"),
        ("kcl_mld", "mld"),
        ("kcl_mld.leases.lease_taker", "mld.leases"),
        ("mld.child", "mld.child"),
        ("mld.of_a_user", "mld.of_a_user"),
    ],
)
def test_loggers_have_the_names_of_domains_and_former_names_are_understood(tmp_path, named, meant):
    logback = f'<configuration><logger name="{named}" level="DEBUG"/></configuration>'
    assert read(tmp_path, logback).levels == ((meant, "DEBUG"),)
    found = read(tmp_path, f'{{"version": 1, "loggers": {{"{named}": {{"level": "DEBUG"}}}}}}')
    assert list(found.python["loggers"]) == [meant]


def test_a_logger_of_java_may_be_several_of_ours(tmp_path):
    logback = '<configuration><logger name="software.amazon.kinesis.leases" level="WARN"/></configuration>'
    assert read(tmp_path, logback).levels == (("mld.leases", "WARNING"), ("mld.shards", "WARNING"))


def test_each_logger_of_the_product_is_one_of_the_names_that_the_page_lists():
    page = (ROOT / "docs" / "logs.md").read_text("utf-8")
    used = {
        name
        for path in (ROOT / "mld").rglob("*.py")
        for name in re.findall(r'getLogger\("(mld[a-z_.]*)"\)', path.read_text("utf-8"))
    } | {"mld.child"}
    assert "getLogger(__name__)" not in "".join(
        path.read_text("utf-8") for path in (ROOT / "mld").rglob("*.py")
    )
    assert [name for name in sorted(used) if f"`{name}`" not in page] == []
