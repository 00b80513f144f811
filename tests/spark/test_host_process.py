"""Stubs and hosts as processes; the server and the sessions are fakes."""

import json
import os
import signal
import sys
import time

import pytest

from kcl_mld.spark.stub_wait import GONE_ADVICE
from tests.spark.stubs import APP, KEEP_ALIVE, ROOT, STUB, Worker, is_alive, kill, wait_for

pytestmark = pytest.mark.process

STATUS = b'{"action": "status", "responseFor": "processRecords"}\n'


@pytest.fixture
def worker(tmp_path):
    worker = Worker(tmp_path)
    yield worker
    worker.close()


def rss_kb(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(file.read().split("VmRSS:")[1].split()[0])


def command_line(child):
    with open(f"/proc/{child.process.pid}/cmdline") as file:
        return file.read().split("\0")


def test_a_stub_is_small_and_imports_no_library(worker):
    child = worker.child().begin()
    assert rss_kb(child.process.pid) < 12_000
    with open(f"/proc/{child.process.pid}/maps") as file:
        maps = file.read()
    assert not any(name in maps for name in ("pyarrow", "pandas", "msgspec", "grpc"))


def test_a_stub_ends_with_zero_when_the_daemon_closes_its_input(worker):
    child = worker.child().begin()
    child.process.stdin.close()
    assert child.end() == (0, child.errors())
    assert child.hear() == b""


def test_only_the_protocol_reaches_stdout_whatever_prints(worker):
    first = worker.child().begin()
    second = worker.child("shardId-000000000001").begin()
    for child in (first, second, first):
        child.say("processRecords", do="noise")
        assert child.hear() == STATUS
    noise = first.errors_until("noise of a subprocess")
    for source in ("the app", "the JVM", "print", "descriptor 1", "a shell"):
        assert f"noise of {source}\n" in noise
    for child in (first, second):
        child.process.stdin.close()
        assert child.hear() == b""


def test_many_stubs_at_once_start_one_host_and_one_server(worker):
    children = [worker.child(f"shardId-{number:012}") for number in range(12)]
    for child in children:
        child.say("initialize")
    for child in children:
        assert json.loads(child.hear())["responseFor"] == "initialize"
    assert len(worker.hosts) == len(worker.servers) == 1
    assert worker.hosts[0] not in {child.process.pid for child in children}


def test_a_start_that_takes_longer_than_the_time_out_is_full_of_signs_of_life(worker, tmp_path):
    os.mkfifo(tmp_path / "ready")
    worker.environ |= {"FAKE_READY_FIFO": str(tmp_path / "ready"), "KCL_MLD_TIMEOUT_S": "2.0"}
    child = worker.child()
    child.say("initialize")
    for _ in range(8):
        assert child.hear_any(patience_s=2.0) == KEEP_ALIVE
    (tmp_path / "ready").write_text("go")
    assert json.loads(child.hear())["responseFor"] == "initialize"
    assert child.ask("processRecords")["action"] == "status"


def test_a_remote_server_is_not_launched(worker):
    worker.properties["spark.remote"] = "sc://somewhere:15002"
    worker.child().begin()
    assert len(worker.hosts) == 1
    assert worker.servers == []


def test_two_workers_have_two_hosts(worker, tmp_path):
    (tmp_path / "other").mkdir()
    other = Worker(tmp_path / "other")
    try:
        other.environ = {"FAKE_DIR": str(worker.folder), "TMPDIR": str(worker.folder)}
        other.app = worker.app
        worker.child().begin()
        survivor = other.child().begin()
        assert len(set(worker.hosts)) == 2
        worker.daemon.kill()
        worker.daemon.wait()
        wait_for(lambda: not is_alive(worker.hosts[0]), "the first host ends", 5.0)
        assert survivor.ask("processRecords")["action"] == "status"
    finally:
        other.close()


def test_a_killed_stub_ends_its_session_alone_and_nothing_is_said_after_it(worker):
    first = worker.child().begin()
    neighbor = worker.child("shardId-000000000001").begin()
    first.say("processRecords", do="block")
    wait_for(lambda: "blocked" in worker.noted("sessions"), "the session is busy")
    kill(first.process.pid)
    wait_for(lambda: "end shardId-000000000000" in worker.noted("sessions"), "it is abandoned", 5.0)
    assert first.hear() == b""
    assert neighbor.ask("processRecords")["action"] == "status"
    assert len(worker.hosts) == 1


def test_the_next_child_of_a_shard_waits_until_the_last_ones_commit_is_done(worker, tmp_path):
    os.mkfifo(tmp_path / "commit")
    first = worker.child().begin()
    first.say("processRecords", do="commit")
    wait_for(lambda: "blocked" in worker.noted("sessions"), "a commit has begun")
    kill(first.process.pid)
    second, neighbor = worker.child(), worker.child("shardId-000000000001")
    second.say("initialize")
    neighbor.begin()
    shard = "shardId-000000000000"
    assert worker.noted("sessions").count(f"begin {shard}") == 1
    (tmp_path / "commit").write_text("done")
    assert json.loads(second.hear())["action"] == "status"
    own = [line for line in worker.noted("sessions") if line.endswith(shard)]
    assert own == [f"begin {shard}", f"end {shard}", f"begin {shard}"]
    assert first.hear() == b""


def test_a_failed_shard_ends_its_stub_alone(worker):
    child, neighbor = worker.child().begin(), worker.child("shardId-000000000001").begin()
    child.say("processRecords", do="fail")
    code, errors = child.end()
    assert code == 70
    assert errors.endswith("kcl-mld-spark: shard-7: the batch failed: disk full\n")
    assert child.hear() == b""
    assert neighbor.ask("processRecords")["action"] == "status"


def test_a_defect_of_a_session_is_told_with_a_traceback(worker):
    child = worker.child().begin()
    child.say("processRecords", do="crash")
    code, errors = child.end()
    assert code == 70
    assert "Traceback" in errors
    assert errors.endswith("kcl-mld-spark: ValueError: of the session itself\n")


def test_lines_about_a_shard_go_to_its_own_stub(worker):
    first = worker.child().begin()
    second = worker.child("shardId-000000000001").begin()
    assert second.ask("processRecords", do="log")["action"] == "status"
    line = "WARNING mld.spark.test: shardId-000000000001 says hello\n"
    assert line in second.errors_until("says hello\n")
    assert first.ask("processRecords", do="log")["action"] == "status"
    assert "000000000001" not in first.errors_until("says hello\n")


def test_when_the_host_is_killed_every_stub_says_so_and_the_server_is_gone(worker):
    children = [worker.child(f"shardId-{number:012}").begin() for number in range(3)]
    (host,) = worker.hosts
    kill(host)
    for child in children:
        code, errors = child.end(5.0)
        assert code == 70
        expected = f"the Spark host (pid {host}) went away without a word: {GONE_ADVICE}\n"
        assert errors.endswith(f"kcl-mld-spark: {expected}")
    worker.wait_until_over("no server is left", 5.0)
    worker.child().begin()
    assert len(worker.hosts) == 2


def test_when_the_server_dies_every_stub_is_told_and_the_next_starts_another(worker):
    children = [worker.child(f"shardId-{number:012}").begin() for number in range(3)]
    children[0].say("processRecords", do="block")
    kill(worker.servers[0])
    text = f"the Spark server (pid {worker.servers[0]}) was killed (signal 9), as the kernel"
    for child in children:
        code, errors = child.end(5.0)
        assert code == 70
        assert f"kcl-mld-spark: {text}" in errors
    worker.child().begin()
    assert len(worker.servers) == 2


@pytest.mark.parametrize("busy", ["block", "stick", "nothing"])
def test_nothing_is_left_five_seconds_after_the_daemon_was_killed(worker, busy):
    child = worker.child().begin()
    child.say("processRecords", do=busy)
    if busy != "nothing":
        wait_for(lambda: {"blocked", "stuck"} & set(worker.noted("sessions")), "it is busy")
    worker.daemon.kill()
    worker.daemon.wait()
    worker.wait_until_over("host and server end", 5.0)
    assert child.end(2.0)[0] in {0, 70}


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_python_worker_that_outlives_its_server_ends_with_the_host(worker, end):
    worker.environ["FAKE_WORKER"] = "1"
    worker.child().begin()
    assert len(worker.servers) == 2
    if end is signal.SIGKILL:
        worker.daemon.kill()
        worker.daemon.wait()
    else:
        os.kill(worker.hosts[0], end)
    try:
        worker.wait_until_over("host, server and Python worker end", 5.0)
    finally:
        for pid in filter(is_alive, worker.servers):
            kill(pid)


@pytest.mark.parametrize("busy", ["block", "stick"])
def test_a_busy_child_is_gone_five_seconds_after_its_input_was_closed(worker, busy):
    child, neighbor = worker.child().begin(), worker.child("shardId-000000000001").begin()
    child.say("processRecords", do=busy)
    wait_for(lambda: {"blocked", "stuck"} & set(worker.noted("sessions")), "it is busy")
    child.process.stdin.close()
    child.end(5.0)
    assert neighbor.ask("processRecords")["action"] == "status"
    if busy == "block":
        assert child.hear() == b""


def test_a_child_whose_lease_is_over_has_not_failed_if_its_job_ends_late(worker):
    child = worker.child().begin()
    assert child.ask("leaseLost", do="linger")["action"] == "status"
    child.process.stdin.close()
    code, errors = child.end()
    assert code == 0
    assert "kcl-mld-spark:" not in errors


def test_a_child_that_waits_for_the_start_obeys_the_end_of_its_input(worker, tmp_path):
    """At once: eight to twenty seconds passed before a daemon could stop while Spark started."""
    os.mkfifo(tmp_path / "ready")
    worker.environ["FAKE_READY_FIFO"] = str(tmp_path / "ready")
    child = worker.child()
    child.say("initialize")
    wait_for(lambda: worker.servers, "the server is launched")
    began = time.monotonic()
    child.process.stdin.close()
    code, errors = child.end(5.0)
    assert time.monotonic() - began < 0.9
    assert code == 0
    assert "kcl-mld-spark:" not in errors
    assert child.hear() == b""


def test_a_child_whose_shard_has_not_begun_obeys_the_end_of_its_input(worker):
    """It waits for the sink's mark, say; a shard that has begun gets time for its commit."""
    child = worker.child()
    child.say("initialize", do="stick")
    wait_for(lambda: "stuck" in worker.noted("sessions"), "it waits")
    began = time.monotonic()
    child.process.stdin.close()
    code, errors = child.end(5.0)
    assert time.monotonic() - began < 2.5
    assert code == 0
    assert "kcl-mld-spark:" not in errors


def test_a_child_shows_at_once_that_it_waits(worker):
    """So that the daemon knows that the end of its input ends it."""
    worker.environ |= {"KCL_MLD_CAPABILITIES": "tick", "KCL_MLD_TIMEOUT_S": None}
    child = worker.child()
    child.say("initialize")
    assert child.hear_any() == KEEP_ALIVE
    assert json.loads(child.hear_any())["responseFor"] == "initialize"


def test_a_terminated_host_tells_its_stubs(worker):
    child = worker.child().begin()
    os.kill(worker.hosts[0], signal.SIGTERM)
    code, errors = child.end(5.0)
    assert (code, errors.splitlines()[-1]) == (70, "kcl-mld-spark: the Spark host was asked to end")
    worker.wait_until_over("host and server end", 5.0)


FAILING_STARTS = {
    "a property": ({"spark.batch.maxRecords": "many"}, {}, None, 2, "spark.batch.maxRecords"),
    "no such property": ({"spark.bach.maxRecords": "1"}, {}, None, 2, "no such property"),
    "an app that raises": ({}, {}, "1 / 0", 2, "ZeroDivisionError"),
    "an app without run": ({}, {}, "pass", 2, "did not call run()"),
    "an app that is no Python": ({}, {}, "def", 2, "is not a Python program"),
    "an app with two calls": ({}, {}, "TWICE", 2, "run() was called twice"),
    "an app that exits": ({}, {}, "raise SystemExit(3)", 2, "ended before run(): exit code 3"),
    "the server": ({}, {"FAKE_START": "unreachable"}, None, 69, "no memory"),
    "no stream": ({}, {"KCL_STREAM_NAME": None}, None, 2, "streamName is not known"),
    "no application": ({}, {"KCL_APPLICATION_NAME": None}, None, 2, "applicationName is not known"),
}
TWICE = """
from kcl_mld.spark import run
try:
    run(print)
except BaseException:
    run(print)
"""


@pytest.mark.parametrize("name", FAILING_STARTS)
def test_a_start_that_fails_is_told_to_every_stub_before_initialize_is_answered(worker, name):
    properties, environ, app, expected, text = FAILING_STARTS[name]
    worker.properties |= properties
    worker.environ = environ
    if app is not None:
        worker.app.write_text(TWICE if app == "TWICE" else app)
    children = [worker.child(f"shardId-{number:012}") for number in range(3)]
    for child in children:
        code, errors = child.end()
        assert code == expected
        (line,) = [line for line in errors.splitlines() if line.startswith("kcl-mld-spark: ")]
        assert text in line
        assert child.hear() == b""
    worker.wait_until_over("nothing is left", 5.0)


def test_a_missing_app_is_told_without_a_host(worker):
    worker.app.unlink()
    code, errors = worker.child().end()
    assert (code, errors) == (
        2,
        f"kcl-mld-spark: the app {worker.app} is not there or can't be read\n",
    )
    assert worker.hosts == []


def test_modules_of_the_users_are_the_users(worker, tmp_path):
    """Those that have the names of our folders, beside the program and in PYTHONPATH."""
    names = ("mld", "protocol")
    for name in names:
        (tmp_path / f"{name}.py").write_text("OWNER = 'the user'\n")
    worker.environ["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{ROOT}"
    lines = [f"import {name}\nassert {name}.OWNER == 'the user'\n" for name in names]
    worker.app.write_text("".join(lines) + APP)
    worker.child().begin()


def test_an_app_that_changes_its_directory_writes_where_the_file_says(worker):
    worker.app.write_text("import os\nos.chdir('/')\n" + APP)
    worker.properties["spark.sink.path"] = "out"
    worker.child().begin()
    assert worker.noted("places") == [str(ROOT / "out")]


def test_the_host_outlives_its_last_shard_by_the_linger(worker):
    worker.properties["spark.host.linger"] = "5s"
    for _ in range(2):
        child = worker.child().begin()
        left_at = time.monotonic()
        child.process.stdin.close()
        child.end()
    assert len(worker.hosts) == 1, "the second child found the host of the first"
    worker.wait_until_over("the host ends", 11.0)
    assert time.monotonic() - left_at >= 5.0
    assert list(worker.folder.glob("kcl-mld-*/*")) == [], "no socket and no lock is left"
    worker.child().begin()
    assert len(worker.hosts) == 2


def test_stubs_that_come_and_go_while_the_host_leaves_always_find_one(worker):
    worker.properties["spark.host.linger"] = "0ms"
    for number in range(12):
        child = worker.child(f"shardId-{number:012}").begin()
        child.process.stdin.close()
        assert child.end()[0] == 0
    assert len(worker.hosts) > 1


def test_a_flood_that_nobody_reads_blocks_nobody(worker):
    child = worker.child().begin()
    assert child.ask("processRecords", do="flood")["action"] == "status"
    assert child.ask("processRecords", do="log")["action"] == "status"
    errors = child.errors_until("lines were dropped here")
    assert "\nf" in errors


def test_what_is_printed_while_no_stub_is_there_reaches_the_next(worker):
    worker.app.write_text(
        "import os, threading\nfrom kcl_mld.spark import run\n"
        f"fifo = {str(worker.folder / 'go')!r}\n"
        "def late():\n    open(fifo).read()\n    print('printed', 'late')\n    open(fifo, 'w')\n"
        "threading.Thread(target=late, daemon=True).start()\n"
        "run(lambda df, ctx: df)\n"
    )
    os.mkfifo(worker.folder / "go")
    child = worker.child().begin()
    child.process.stdin.close()
    child.end()
    (worker.folder / "go").write_text("go")
    (worker.folder / "go").read_text()
    assert "printed late\n" in worker.child().begin().errors_until("printed late\n")


def test_python_app_py_becomes_the_stub(worker):
    worker.app.write_text(
        "import sys\n"
        "import pyspark\n"
        "from kcl_mld.spark import run\n"
        "print('printed before run')\n"
        "run(lambda df, ctx: df)\n"
    )
    worker.properties |= {"spark.remote": "sc://localhost:1", "spark.sink": "foreach"}
    worker.environ["PYTHONUNBUFFERED"] = None  # or the daemon would read what is printed
    child = worker.child(argv=[sys.executable, str(worker.app), "an", "argument"])
    expected = ["kcl_mld.spark.stub", str(worker.app), "an", "argument", ""]
    wait_for(lambda: command_line(child)[-5:] == expected, "it became the stub")
    assert child.hear() == b""
    code, errors = child.end()
    assert code == 69
    assert "printed before run" in errors, "by the host, which imported it"


def test_under_another_daemon_the_file_says_what_the_environment_does_not(worker, tmp_path):
    file = tmp_path / "app.properties"
    file.write_text(
        "applicationName = an app\nstreamName : a-stream\nspark.host.linger=1s\n"
        "executableName = python app.py\n"
    )
    for name in ("KCL_APPLICATION_NAME", "KCL_STREAM_NAME", "KCL_MLD_SPARK", "KCL_MLD_PID"):
        worker.environ[name] = None
    argv = [sys.executable, "-c", STUB, "--properties", str(file), str(worker.app)]
    child = worker.child(argv=argv).begin()
    child.process.stdin.close()
    assert child.end()[0] == 0
    worker.wait_until_over("the linger of the file is over", 8.0)
