"""Launching the server, with a program in place of Java: it says what it was given, and waits."""

from __future__ import annotations

import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import MissingPart, SparkConfigError, SparkUnreachable
from kcl_mld.spark.server.java import JavaHome
from kcl_mld.spark.server.launcher import EmbeddedServer

_FAKE = """\
#!{python} -S
import os, signal, sys, time
if "-version" in sys.argv:
    print("    java.home = {home}\\n    java.specification.version = 17")
    sys.exit(0)
if "QUIET" not in os.environ:
    print("told", sys.argv[1:], flush=True)
{script}
"""
_READY = 'print("INFO Spark Connect server started at: 127.0.0.1:4711", flush=True)\n'
_WAIT = _READY + "time.sleep(60)\n"


@pytest.fixture
def launch(tmp_path):
    """Start a server whose Java runs the given lines of Python; stopped at the end."""
    started = []

    def start(script: str, properties: dict[str, str] | None = None, environ=None, **more):
        home = tmp_path / "java"
        program = home / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(_FAKE.format(python=sys.executable, home=home, script=script))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        directory = tmp_path / "server"
        directory.mkdir()
        server = EmbeddedServer.launch(
            read_properties(properties or {}),
            directory,
            {"PATH": os.defpath, **(environ or {}), "JAVA_HOME": str(home)},
            **more,
        )
        started.append(server)
        return server

    yield start
    for server in started:
        server.stop()


def test_it_is_ready_when_it_says_so(launch):
    server = launch(_WAIT)
    server.wait_ready(30)
    server.wait_ready(0)
    assert server.url == "sc://localhost:4711"
    assert server.poll() is None


def test_what_it_prints_on_its_standard_output_goes_to_our_standard_error(launch, capfd):
    server = launch(_WAIT)
    server.wait_ready(30)
    server.stop()
    output = capfd.readouterr()
    assert "told" in output.err
    assert output.out == ""


def test_the_token_is_in_the_environment_only(launch):
    server = launch("print(os.environ['SPARK_CONNECT_AUTHENTICATE_TOKEN'])\n" + _WAIT)
    server.wait_ready(30)
    told, token = server.last_lines()[:2]
    assert token == server.token
    assert len(token) >= 40
    assert token not in told


def test_two_servers_have_two_tokens(launch, tmp_path):
    first = launch(_WAIT)
    (tmp_path / "java").rename(tmp_path / "java-1")
    (tmp_path / "server").rename(tmp_path / "server-1")
    assert launch(_WAIT).token != first.token


def test_python_workers_are_of_this_environment_unless_another_is_named(launch):
    server = launch("print(os.environ['PYSPARK_PYTHON'])\n" + _WAIT)
    server.wait_ready(30)
    assert server.last_lines()[1] == sys.executable


def test_a_named_python_is_taken_for_the_workers(launch):
    server = launch(
        "print(os.environ['PYSPARK_PYTHON'])\n" + _WAIT,
        {"spark.conf.spark.pyspark.python": "/opt/python"},
    )
    server.wait_ready(30)
    assert server.last_lines()[1] == "/opt/python"


_SHOW = "print(open(sys.argv[sys.argv.index('--properties-file') + 1]).read())\n"


def test_the_users_conf_and_the_apps_name_reach_the_server(launch):
    server = launch(_SHOW + _WAIT, {"spark.conf.spark.x": "1"}, app_name="flights")
    server.wait_ready(30)
    lines = server.last_lines()
    assert "spark.x=1" in lines
    assert "spark.app.name=flights" in lines


def test_the_properties_are_private_and_gone_once_it_is_ready(launch, tmp_path):
    show_mode = "print(oct(os.stat(sys.argv[sys.argv.index('--properties-file') + 1]).st_mode))\n"
    server = launch(show_mode + _WAIT)
    server.wait_ready(30)
    assert server.last_lines()[1] == "0o100600"
    assert not (tmp_path / "server" / "spark.properties").exists()


def test_a_repository_of_the_environment_becomes_the_only_one(launch, tmp_path):
    server = launch(_SHOW + _WAIT, environ={"KCL_MLD_MAVEN_REPOSITORY": "https://repo/x"})
    server.wait_ready(30)
    settings = tmp_path / "server" / "ivysettings.xml"
    assert f"spark.jars.ivySettings={settings}" in server.last_lines()
    assert 'root="https://repo/x/"' in settings.read_text()
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600


def test_the_clusters_configuration_is_on_the_class_path(launch):
    server = launch(_WAIT, environ={"HADOOP_CONF_DIR": "/etc/hadoop"})
    server.wait_ready(30)
    assert "/jars/*:/etc/hadoop'" in server.last_lines()[0]


def test_with_a_master_elsewhere_the_driver_does_not_hide(launch):
    server = launch("print('SPARK_LOCAL_IP' in os.environ)\n" + _WAIT, {"spark.master": "yarn"})
    server.wait_ready(30)
    assert server.last_lines()[1] == "False"


def test_an_early_end_is_told_with_the_last_lines(launch):
    server = launch("print('line one\\nno good', file=sys.stderr)\nsys.exit(7)\n")
    with pytest.raises(SparkUnreachable, match=r"exit code 7: no good; its last lines:\n") as it:
        server.wait_ready(30)
    assert str(it.value).endswith("\n  | line one\n  | no good")


def test_an_end_by_a_signal_is_told(launch):
    server = launch("sys.stdout.flush()\nos.kill(os.getpid(), signal.SIGKILL)\n")
    with pytest.raises(SparkUnreachable, match="was ended by signal 9"):
        server.wait_ready(30)


def test_a_known_cause_is_named_first(launch):
    server = launch("print('System memory 1 must be at least 2')\nsys.exit(1)\n")
    with pytest.raises(SparkConfigError, match=r"exit code 1: its heap is too small; raise spark"):
        server.wait_ready(30)


def test_a_package_that_cannot_be_fetched_is_a_missing_part(launch):
    line = "RuntimeException: [unresolved dependency: io.delta#delta-x;4: not found]"
    server = launch(
        f"print({line!r})\nprint('\\tat a.b(c)\\n' * 200)\nsys.exit(1)\n",
        environ={"KCL_MLD_MAVEN_REPOSITORY": "http://me:secret@localhost:1/x"},
    )
    with pytest.raises(MissingPart, match=r"package io\.delta:delta-x:4 cannot") as it:
        server.wait_ready(30)
    assert "secret" not in str(it.value)
    assert "\n" not in str(it.value)


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("All masters are unresponsive! Giving up.", "spark.master is no Spark master"),
        ("Reason: Master removed our application: FAILED", "the cluster cannot run executors"),
    ],
)
def test_a_cause_is_kept_however_long_the_trace_behind_it_is(launch, printed, told):
    server = launch(f"print({printed!r})\nprint('at x\\n' * 200)\nsys.exit(1)\n")
    with pytest.raises(SparkUnreachable, match=f"ended with exit code 1: {told}"):
        server.wait_ready(30)


def test_a_server_that_closes_its_output_and_lives_on_is_stopped(launch):
    server = launch("sys.stdout.flush()\nos.close(1)\nos.close(2)\ntime.sleep(60)\n")
    with pytest.raises(SparkUnreachable, match=r"did not answer within 30 s"):
        server.wait_ready(30)
    assert server.poll() == -signal.SIGTERM


def test_a_slow_server_is_stopped(launch):
    server = launch("time.sleep(60)\n", environ={"QUIET": "1"})
    with pytest.raises(SparkUnreachable, match="not ready: wait_ready comes first"):
        _ = server.url
    with pytest.raises(SparkUnreachable, match=r"did not answer within 0\.2 s; it printed nothing"):
        server.wait_ready(0.2)
    assert server.poll() == -signal.SIGTERM


def test_one_that_ignores_the_request_to_end_is_killed_within_three_seconds(launch):
    server = launch("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + _WAIT)
    server.wait_ready(30)
    begin = time.monotonic()
    server.stop()
    assert time.monotonic() - begin < 3
    assert server.poll() == -signal.SIGKILL


def test_it_is_launched_from_the_main_thread_only(launch):
    refused = []

    def attempt():
        try:
            launch(_WAIT)
        except RuntimeError as error:
            refused.append(str(error))

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    assert refused == ["the Spark server must be launched from the main thread"]


def test_a_program_that_cannot_be_started_is_told(launch, monkeypatch):
    def refuse(*_args, **_more):
        raise OSError("no memory")

    monkeypatch.setattr("kcl_mld.spark.server.launcher.subprocess.Popen", refuse)
    java = JavaHome(Path("/java"), 17, "a test")
    monkeypatch.setattr("kcl_mld.spark.server.setup.find_java", lambda *_: java)
    with pytest.raises(SparkUnreachable, match="cannot be started: no memory"):
        launch(_WAIT)
