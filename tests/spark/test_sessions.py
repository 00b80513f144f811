"""``ConnectSessions`` against a real server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import SparkConfigError, SparkUnreachable
from kcl_mld.spark.failures import describe, is_server_gone, is_session_lost
from kcl_mld.spark.server.launcher import EmbeddedServer
from kcl_mld.spark.server.sessions import ConnectSessions
from tests.spark.conftest import spark_config

pytestmark = pytest.mark.spark


@pytest.fixture
def sessions(spark_server):
    """One's own sessions, so that they may be broken."""
    sessions = ConnectSessions(spark_server.url, spark_server.token, spark_config(), "tests")
    yield sessions
    sessions.close()


def _release_behind_its_back(session) -> None:
    """What an hour of idleness does: the server forgets the session, the client does not know."""
    session.client.release_session()


def test_a_session_answers_in_utc(spark):
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.range(10).select(F.sum("id")).first()[0] == 45


def test_asking_again_gives_the_same_session(sessions):
    assert sessions.get() is sessions.get()


def test_a_session_that_the_server_dropped_is_told_and_the_next_one_works(sessions):
    lost = sessions.get()
    assert lost.range(3).count() == 3
    _release_behind_its_back(lost)
    with pytest.raises(Exception, match="SESSION_CLOSED") as caught:
        lost.range(3).count()
    assert is_session_lost(caught.value)
    assert not is_server_gone(caught.value)
    sessions.renew(lost)
    assert sessions.get() is not lost
    assert sessions.get().range(3).count() == 3


def test_several_threads_that_lost_one_session_make_one_new_one(sessions):
    lost = sessions.get()
    sessions.renew(lost)
    second = sessions.get()
    sessions.renew(lost)
    assert sessions.get() is second


def test_a_session_that_somebody_stopped_is_replaced(sessions):
    lost = sessions.get()
    lost.stop()
    assert sessions.get() is not lost
    assert sessions.get().range(3).count() == 3


def test_closed_sessions_stay_closed(sessions):
    sessions.get()
    sessions.close()
    with pytest.raises(SparkUnreachable, match="are closed"):
        sessions.get()


def test_only_what_carries_the_tag_is_interrupted(sessions, tmp_path):
    spark = sessions.get()
    running = tmp_path / "running"

    @F.udf("long")
    def slow(number):
        running.touch()
        time.sleep(60)
        return number

    caught: list[BaseException] = []

    def work():
        session = sessions.get()
        session.addTag("one")
        try:
            session.range(1).select(slow("id")).collect()
        except Exception as error:  # noqa: BLE001
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    deadline = time.monotonic() + 30
    while not running.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    sessions.interrupt("other")
    assert thread.is_alive()
    assert spark.range(3).count() == 3
    sessions.interrupt("one")
    thread.join(120)
    assert not thread.is_alive()
    assert "OPERATION_CANCELED" in describe(caught[0])


def test_interrupting_before_there_is_a_session_is_quiet(sessions):
    sessions.interrupt("one")


def test_nobody_at_the_address_is_an_error_within_seconds():
    begin = time.monotonic()
    sessions = ConnectSessions("sc://localhost:1", "x", spark_config(), "tests")
    with pytest.raises(SparkUnreachable, match="no Spark server answers at localhost:1: "):
        sessions.get()
    assert time.monotonic() - begin < 10


def test_a_cluster_s_session_gets_the_users_conf(spark_server):
    config = read_properties(
        {"spark.remote": spark_server.url, "spark.conf.spark.sql.shuffle.partitions": "7"}
    )
    sessions = ConnectSessions(spark_server.url + "/", spark_server.token, config, "tests")
    assert sessions.get().conf.get("spark.sql.shuffle.partitions") == "7"
    sessions.close()


def test_a_conf_that_only_the_cluster_can_set_is_named(spark_server):
    config = read_properties(
        {"spark.remote": spark_server.url, "spark.conf.spark.sql.extensions": "a.B"}
    )
    sessions = ConnectSessions(spark_server.url, spark_server.token, config, "tests")
    with pytest.raises(
        SparkConfigError, match=r"spark\.conf\.spark\.sql\.extensions: a session cannot"
    ):
        sessions.get()


def test_errors_of_spark_are_told_without_stack_or_data(spark, capfd):
    text = spark.createDataFrame([("secret",)], "a string")
    with pytest.raises(Exception, match="CAST_INVALID_INPUT") as caught:
        text.select(F.col("a").cast("int")).collect()
    assert "secret" not in describe(caught.value)
    assert "JVM stacktrace" not in describe(caught.value)
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN") as caught:
        text.select("b").collect()
    assert "name `b` cannot be resolved" in describe(caught.value)
    output = capfd.readouterr()
    assert "secret" not in output.err + output.out


def test_an_error_of_the_users_function_in_a_python_worker_names_its_line(spark):
    @F.udf("long")
    def broken(number):
        raise ValueError("not today")

    with pytest.raises(Exception, match="not today") as caught:
        spark.range(1).select(broken("id")).collect()
    told = describe(caught.value)
    assert told.startswith("a Python worker failed: ValueError: not today")
    assert "test_sessions.py" in told
    assert "\n" not in told


_LEAVER = """
import os, sys
from tests.spark.conftest import spark_config
from kcl_mld.spark.server.sessions import ConnectSessions
url, token, pid, end = sys.argv[1:]
sessions = ConnectSessions(url, token, spark_config(), "leaver")
assert sessions.get().range(3).count() == 3
os.kill(int(pid), int(end))
if "close" in os.environ:
    sessions.close()
"""


@pytest.mark.parametrize(
    ("end", "closes"),
    [(signal.SIGSTOP, True), (signal.SIGKILL, False)],
    ids=["hangs, and is closed", "dies, and nobody closes"],
)
def test_no_server_holds_up_the_end_of_the_interpreter(tmp_path, end, closes):
    server = EmbeddedServer.launch(spark_config(), tmp_path, os.environ)
    try:
        server.wait_ready(180)
        command = [sys.executable, "-c", _LEAVER, server.url, server.token, str(server.pid)]
        done = subprocess.run(
            [*command, str(int(end))],
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, **({"close": "1"} if closes else {})},
            timeout=90,  # importing and the first job take 5 to 30 s of it; pyspark itself waits for ever
            check=False,
        )
        assert done.returncode == 0
        begin = time.monotonic()
        server.stop()  # a server that hangs is killed after two seconds
        assert time.monotonic() - begin < 3
    finally:
        server.stop()


def _children() -> set[str]:
    me = os.getpid()
    return {
        path.parent.name
        for path in Path("/proc").glob("[0-9]*/stat")
        if (text := _text_of(path)) and text.rpartition(")")[2].split()[1] == str(me)
    }


def _text_of(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # it ended in between
        return ""


def test_a_session_with_a_server_elsewhere_starts_no_process(sessions):
    before = _children()
    assert sessions.get().range(3).count() == 3
    assert _children() <= before
