"""The daemon's own command: what ends it, with which exit code, and what is said."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

import kcl_mld.app
import kcl_mld.cli.run
from kcl_mld.app.scheduler import StopOutcome
from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.cli.run import run
from kcl_mld.cli.run_options import RunOptions
from kcl_mld.errors import (
    ChildFailed,
    ConfigError,
    CredentialsMissing,
    ResourceMissing,
    Unreachable,
    UnservableFleet,
)
from kcl_mld.kernel.adapters.system import SystemClock
from kcl_mld.observe.rules.readiness import WorkerSnapshot, readiness
from tests.unit.children.consumer_world import Inline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("restored_logging")

COMPLETE = StopOutcome(complete=True, released=3, handed_over=1)
CUT_SHORT = StopOutcome(complete=False, leases_left=2)
#: Signals that a worker knows.
HANDLED = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGTERM,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
FILE = """\
executableName = sh app.py
streamName = orders
applicationName = app
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
"""


@dataclass
class FakeScheduler:
    """Runs what the test says."""

    work: Callable[[FakeScheduler], Awaitable[StopOutcome]]
    asked: list[str] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    state: str = "running"

    def stop(self) -> None:
        self.asked.append("stop")
        self.changed.set()

    def stop_now(self) -> None:
        self.asked.append("now")
        self.changed.set()

    async def run(self) -> StopOutcome:
        return await self.work(self)

    async def was_asked(self) -> None:
        async with asyncio.timeout(20):
            await self.changed.wait()
        self.changed.clear()


class FakeMetrics:
    def __init__(self) -> None:
        self.closed: list[float] = []

    async def close(self, timeout_s: float) -> None:
        self.closed.append(timeout_s)


class Watchdog:
    def is_alive(self) -> bool:
        return True


def snapshot(state: str) -> WorkerSnapshot:
    """A worker with one shard that is 90 s behind."""
    status = ConsumerStatus(
        lease_key="shardId-0", shard_id="shardId-0", state="PROCESSING", reading_lag_s=90.0
    )
    return WorkerSnapshot(state=state, shards=(status,))


@dataclass
class Started:
    """What ``run`` made of its input."""

    work: Callable[[FakeScheduler], Awaitable[StopOutcome]]
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    account: str | Exception = "123456789012"
    refused: Exception | None = None
    scheduler: FakeScheduler | None = None
    config: Any = None
    stream: Any = None
    worlds_left: int = 0
    keeps_metrics: bool = False

    def build(self, config: Any, ports: Any, stream: Any, *, keeps_metrics: bool) -> Any:
        self.config, self.stream, self.keeps_metrics = config, stream, keeps_metrics
        scheduler = self.scheduler = FakeScheduler(self.work)
        return types.SimpleNamespace(
            scheduler=self.scheduler,
            run=self.scheduler.run,
            close_metrics=self.metrics.close,
            readings=list,
            ports=ports,
            watchdog=Watchdog(),
            readiness=lambda age_s=None: readiness(snapshot(scheduler.state), age_s),
            status=lambda: {"worker_id": config.worker_id},
        )

    @contextlib.contextmanager
    def real_ports(self, config: Any, read_entries: Any) -> Iterator[Any]:
        assert "applicationName" in {entry.key for entry in read_entries()}
        if self.refused is not None:
            raise self.refused

        async def account() -> str:
            if isinstance(self.account, Exception):
                raise self.account
            return self.account

        yield kcl_mld.app.RealWorld(
            types.SimpleNamespace(offload=Inline(), clock=SystemClock()),  # type: ignore[arg-type]
            "us-east-1",
            account,
            "https://kinesis",
        )
        self.worlds_left += 1


@pytest.fixture
def own_signals() -> Iterator[None]:
    """What a worker does to signals until its process ends is undone."""
    before = {number: signal.getsignal(number) for number in HANDLED}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_signals: None
) -> Callable[..., tuple[int, Started]]:
    """Runs the command with a scheduler of the test's; gives the exit code and what was started."""

    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.py").touch()

    def start(
        work: Callable[[FakeScheduler], Awaitable[StopOutcome]],
        text: str = FILE,
        http: tuple[str, int] | None = None,
        **settings: Any,
    ) -> tuple[int, Started]:
        file = tmp_path / "app.properties"
        file.write_text(text)
        started = Started(work, **settings)
        monkeypatch.setattr(kcl_mld.app, "build", started.build)
        monkeypatch.setattr(kcl_mld.app, "real_ports", started.real_ports)
        return run(RunOptions(properties_file=str(file), http=http)), started

    return start


def ends_with(outcome: StopOutcome | Exception) -> Callable[[FakeScheduler], Any]:
    async def work(_scheduler: FakeScheduler) -> StopOutcome:
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return work


def test_a_complete_stop_is_a_success(daemon, capsys):
    code, started = daemon(ends_with(COMPLETE), metrics=FakeMetrics())
    assert code == 0
    assert started.config.application_name == "app"
    assert len(started.config.worker_id) == 36
    assert (started.stream.name, started.stream.arn) == ("orders", None)
    assert started.metrics.closed == [2.0]
    assert started.worlds_left == 1
    said = capsys.readouterr().err
    assert "Running app to process stream orders with executable sh app.py" in said
    assert "all children were notified; 3 leases released, 1 handed over" in said


def test_the_log_shows_the_command_without_what_the_environment_holds(daemon, capsys, monkeypatch):
    monkeypatch.setenv("KCL_MLD_EXPAND_ENV", "true")
    monkeypatch.setenv("KEEPER", "hunter2")
    _, started = daemon(ends_with(COMPLETE), text=FILE.replace("app.py", "app.py ${KEEPER}"))
    assert started.config.child.argv == ("sh", "app.py", "hunter2")
    said = capsys.readouterr().err
    assert "with executable sh app.py ${KEEPER} as worker" in said
    assert "hunter2" not in said


def test_leases_that_expired_were_not_released(daemon, capsys):
    code, _ = daemon(ends_with(StopOutcome(complete=True, expired=2)))
    assert code == 0
    said = capsys.readouterr().err
    assert "leases released" not in said
    assert "but 2 leases had expired and were not released" in said


CLICKS = "arn:aws:kinesis:us-east-1:123456789012:stream/clicks"


def test_many_streams_are_found_by_the_worker_itself(daemon, capsys):
    text = FILE.replace("streamName = orders", f"multiStream = true\nstreams = orders, {CLICKS}")
    code, started = daemon(ends_with(COMPLETE), text, account=AssertionError("nobody asks STS"))
    assert code == 0
    assert started.stream is None
    assert [one.name for one in started.config.streams.streams] == ["orders", "clicks"]
    assert f"(orders, {CLICKS}) with executable sh app.py" in capsys.readouterr().err


def test_a_stream_of_another_region_than_the_clients_is_refused(daemon, capsys):
    arn = CLICKS.replace("us-east-1", "eu-west-1")
    text = FILE.replace("streamName = orders", f"multiStream = true\nstreams = {arn}")
    code, started = daemon(ends_with(COMPLETE), text.replace("regionName", "#regionName"))
    assert (code, started.scheduler) == (2, None)
    assert "is in eu-west-1, but the Kinesis client is in us-east-1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ResourceMissing("stream orders does not exist"), 4),
        (UnservableFleet("a fleet of 3.x"), 5),
    ],
)
def test_an_error_of_the_worker_decides_the_code_and_is_said_once(daemon, capsys, error, code):
    found, started = daemon(ends_with(error), metrics=FakeMetrics())
    assert found == code
    assert capsys.readouterr().err.count(str(error)) == 1
    assert started.metrics.closed == [2.0]


def test_the_last_line_says_why_a_failed_child_ended_the_worker(daemon, capsys):
    error = ChildFailed("shardId-0", "processRecords", "it ended", 7)
    found, _ = daemon(ends_with(error), metrics=FakeMetrics())
    assert found == 1
    last = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert last["level"] == "WARNING"
    assert last["msg"] == (
        "Exiting with code 1: shardId-0: child failed at processRecords: it ended (exit status 7)"
    )


def test_a_program_that_cannot_be_started_is_refused_before_anything_is_asked_for(daemon, capsys):
    text = FILE.replace("sh app.py", "app.py")
    code, started = daemon(ends_with(AssertionError("it ran")), text)
    assert (code, started.worlds_left) == (2, 0)
    err = capsys.readouterr().err
    assert "app.properties:1: error: executableName: app.py is not found in PATH" in err
    assert "write executableName = python3 app.py, or chmod +x it" in err


def test_python_that_ignores_the_bundled_amazon_kclpy_is_refused(daemon, capsys):
    text = FILE.replace("sh app.py", "python3 -I app.py") + "kclpy = bundled\n"
    assert daemon(ends_with(AssertionError("it ran")), text)[0] == 2
    err = capsys.readouterr().err
    assert "app.properties:1: error: executableName: python3 -I ignores PYTHONPATH" in err
    assert "leave -I out, or write kclpy = auto" in err


def test_what_is_worth_knowing_of_the_program_is_logged_and_the_worker_runs(daemon, capsys):
    text = FILE + "AwsCredentialsProviderDynamoDB = ProfileCredentialsProvider|no-such\n"
    code, _ = daemon(ends_with(COMPLETE), text)
    assert code == 0
    assert "this machine has no profile 'no-such'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CredentialsMissing("AwsCredentialsProvider: no credentials"), 3),
        (ConfigError("no region is known", key="regionName"), 2),
    ],
)
def test_an_error_before_the_start_is_said_on_stderr(daemon, capsys, error, code):
    found, started = daemon(ends_with(COMPLETE), refused=error)
    assert found == code
    assert started.scheduler is None
    said = capsys.readouterr().err
    assert f"{error}\n" in said
    assert "kcl-mld --help" not in said


def test_an_unexpected_error_ends_with_1_and_its_traceback(daemon, capsys):
    code, _ = daemon(ends_with(COMPLETE), refused=KeyError("a defect"))
    assert code == 1
    said = capsys.readouterr().err
    assert "The worker ends because of an unexpected error" in said
    assert "KeyError: 'a defect'" in said


def test_a_wrong_file_ends_with_2(daemon, capsys):
    code, started = daemon(ends_with(COMPLETE), text=FILE.replace("streamName", "streamNam"))
    assert code == 2
    assert started.scheduler is None
    assert "streamName" in capsys.readouterr().err


def test_the_worker_knows_region_and_endpoint_that_were_found(daemon):
    _, started = daemon(ends_with(COMPLETE), text=FILE.replace("regionName", "#regionName"))
    assert started.config.stream.region is None
    assert started.config.aws.kinesis_region == "us-east-1"
    assert started.config.aws.kinesis_endpoint == "https://kinesis"


def test_a_copy_is_called_by_the_name_of_its_file(tmp_path, capsys, restored_logging):
    (tmp_path / "copy").write_text("applicationName = app\n")
    options = RunOptions(properties_file=str(tmp_path / "copy"), shown_as="mine.properties")
    assert run(options) == 2
    err = capsys.readouterr().err
    assert "mine.properties: error: executableName: Must provide an executable name" in err
    assert "/copy" not in err


def test_a_file_that_is_not_there_ends_with_2(capsys):
    assert run(RunOptions(properties_file="/nowhere/app.properties")) == 2
    assert "/nowhere/app.properties" in capsys.readouterr().err


# --- signals


async def until_asked(scheduler: FakeScheduler, number: int, times: int) -> None:
    for _ in range(times):
        os.kill(os.getpid(), number)
        await scheduler.was_asked()


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_first_signal_asks_for_a_stop_and_a_complete_one_is_a_success(daemon, capsys, number):
    async def work(scheduler: FakeScheduler) -> StopOutcome:
        await until_asked(scheduler, number, 1)
        return COMPLETE

    code, started = daemon(work)
    assert code == 0
    assert started.scheduler.asked == ["stop"]
    assert f"{signal.Signals(number).name} received, stopping" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_second_signal_stops_now_and_the_first_one_gives_the_code(daemon, capsys, number, code):
    async def work(scheduler: FakeScheduler) -> StopOutcome:
        await until_asked(scheduler, number, 1)
        await until_asked(scheduler, signal.SIGTERM, 2)
        return CUT_SHORT

    found, started = daemon(work)
    assert found == code
    assert started.scheduler.asked == ["stop", "now", "now"]
    said = capsys.readouterr().err
    assert "SIGTERM received again, stopping now" in said
    assert "2 leases will expire" in said


@pytest.mark.usefixtures("hangup")
def test_a_second_hangup_does_not_cut_the_stop_short(daemon, capsys):
    async def work(scheduler: FakeScheduler) -> StopOutcome:
        await until_asked(scheduler, signal.SIGHUP, 1)
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)  # the first of its kind
        await asyncio.sleep(0.1)
        return CUT_SHORT

    code, started = daemon(work)
    assert code == 129
    assert started.scheduler.asked == ["stop"]
    assert "SIGTERM received, the worker is already stopping" in capsys.readouterr().err


def test_a_worker_under_nohup_goes_on_after_a_hangup(daemon):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)

    async def work(_scheduler: FakeScheduler) -> StopOutcome:
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        return COMPLETE

    code, started = daemon(work)
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN
    assert code == 0
    assert started.scheduler.asked == []


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2])
def test_signals_without_a_meaning_are_told_and_end_nothing(daemon, capsys, number):
    async def work(_scheduler: FakeScheduler) -> StopOutcome:
        os.kill(os.getpid(), number)
        await asyncio.sleep(0.05)
        return COMPLETE

    code, started = daemon(work)
    assert (code, started.scheduler.asked) == (0, [])
    assert f"{number.name} received and ignored" in capsys.readouterr().err


def test_sigquit_tells_the_state_and_the_worker_goes_on(daemon, capsys):
    async def work(_scheduler: FakeScheduler) -> StopOutcome:
        os.kill(os.getpid(), signal.SIGQUIT)
        await asyncio.sleep(0.5)
        return COMPLETE

    code, started = daemon(work)
    assert (code, started.scheduler.asked) == (0, [])
    said = [json.loads(line)["msg"] for line in capsys.readouterr().err.splitlines()]
    (state,) = [text for text in said if text.startswith("State at SIGQUIT:")]
    shown = json.loads(state.partition("\n")[2])
    assert shown["worker_id"] == started.config.worker_id
    assert shown["readiness"]["ready"] is True
    (tasks,) = [text for text in said if text.startswith("Tasks at SIGQUIT:")]
    assert ".work" in tasks
    (threads,) = [text for text in said if text.startswith("Threads at SIGQUIT:")]
    assert "MainThread" in threads


def test_a_stop_that_is_cut_short_without_a_signal_is_a_failure(daemon):
    assert daemon(ends_with(CUT_SHORT))[0] == 1


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize(
    "outcome", [COMPLETE, CUT_SHORT, ResourceMissing("no stream"), ValueError("a defect")]
)
def test_once_the_outcome_is_known_signals_are_ignored(daemon, outcome):
    daemon(ends_with(outcome))
    found = {number: signal.getsignal(number) for number in HANDLED}
    assert found == dict.fromkeys(HANDLED, signal.SIG_IGN)


# --- streams by ARN

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
BY_ARN = FILE.replace("streamName = orders", f"streamArn = {ARN}")


def test_a_stream_of_our_own_account_is_asked_for_by_its_arn(daemon):
    code, started = daemon(ends_with(COMPLETE), text=BY_ARN)
    assert (code, started.stream.name, started.stream.arn) == (0, "orders", ARN)


def test_an_account_that_cannot_be_found_out_leaves_the_name(daemon, capsys):
    unknown = Unreachable("GetCallerIdentity", "ConnectTimeoutError")
    code, started = daemon(ends_with(COMPLETE), text=BY_ARN, account=unknown)
    assert (code, started.stream.name, started.stream.arn) == (0, "orders", None)
    assert "Own account unknown" in capsys.readouterr().err


def test_a_stream_of_another_account_is_refused(daemon, capsys):
    code, started = daemon(ends_with(COMPLETE), text=BY_ARN, account="999999999999")
    assert code == 2
    assert started.scheduler is None
    assert "streamArnAddressing" in capsys.readouterr().err


def test_nobody_is_asked_for_the_account_where_the_file_decides(daemon):
    defect = AssertionError("STS was asked")
    text = BY_ARN + "streamArnAddressing = arn\n"
    code, started = daemon(ends_with(COMPLETE), text=text, account=defect)
    assert (code, started.stream.arn) == (0, ARN)


# --- health over HTTP


async def get(port: int, path: str) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def test_health_is_served_while_the_worker_runs(daemon, capsys):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    seen = []

    async def work(scheduler: FakeScheduler) -> StopOutcome:
        seen.append(await get(port, "/livez"))
        seen.append(await get(port, "/readyz"))
        scheduler.state = "stopping"
        seen.append(await get(port, "/readyz"))
        seen.append(await get(port, "/leases"))
        return COMPLETE

    code, started = daemon(work, http=("127.0.0.1", port))
    assert code == 0
    assert seen == [
        (200, {"state": "running"}),
        (200, readiness(snapshot("running")).as_dict()),
        (503, readiness(snapshot("stopping")).as_dict()),
        (200, {"worker_id": started.config.worker_id}),
    ]
    assert started.keeps_metrics
    assert f"on 127.0.0.1:{port}" in capsys.readouterr().err


def test_readiness_may_be_asked_with_an_age_limit(daemon):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    seen: dict[str, tuple[int, Any]] = {}

    async def work(_scheduler: FakeScheduler) -> StopOutcome:
        for query in (
            *("maxAge=100", "maxAge=90.5", "maxAge=60", "maxage=60", "x"),
            *("maxAge=", "maxAge=x", "maxAge=-1", "maxAge=0", "maxAge=nan", "maxAge=inf"),
            *("maxAge", "maxAge=60s", "maxAge=100&maxAge=60"),
        ):
            seen[query] = await get(port, f"/readyz?{query}")
        return COMPLETE

    assert daemon(work, http=("127.0.0.1", port))[0] == 0
    codes = {query: code for query, (code, _) in seen.items()}
    good = {"maxAge=100": 200, "maxAge=90.5": 200, "maxAge=60": 503, "x": 200}
    assert codes == good | dict.fromkeys(codes.keys() - good.keys(), 400)
    assert seen["maxAge=60"][1]["reasons"] == [
        {"reason": "too_old", "message": "shardId-0 is 90 s behind, the limit is 60 s"}
    ]
    assert seen["maxAge=60s"][1] == {
        "error": "maxAge=60s: one positive number of seconds is needed"
    }
    assert seen["maxage=60"][1] == {"error": "unknown parameter maxage: it is called maxAge"}


def test_an_address_that_is_taken_ends_with_2_before_the_worker_runs(daemon, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = taken.getsockname()
        metrics = FakeMetrics()
        code, _ = daemon(ends_with(AssertionError("it ran")), http=address, metrics=metrics)
    assert code == 2
    assert f"cannot listen on 127.0.0.1:{address[1]}" in capsys.readouterr().err
    assert metrics.closed == [2.0]


async def text_of(port: int, path: str) -> tuple[int, str]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body.decode()


@pytest.mark.parametrize("is_installed", [True, False])
def test_metrics_without_their_library_say_what_to_install(
    daemon, capsys, monkeypatch, is_installed
):
    if is_installed:
        pytest.importorskip("prometheus_client")
    else:
        monkeypatch.setitem(sys.modules, "kcl_mld.observe.adapters.prometheus", None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    seen = []

    async def work(_scheduler: FakeScheduler) -> StopOutcome:
        seen.append(await text_of(port, "/metrics"))
        return COMPLETE

    assert daemon(work, http=("127.0.0.1", port))[0] == 0
    ((code, text),) = seen
    needed = "/metrics needs prometheus_client: pip install 'kcl-mld[prometheus]'"
    if is_installed:
        assert (code, "process_cpu_seconds_total" in text) == (200, True)
    else:
        assert (code, text) == (501, f"{needed}\n")
    assert (needed in capsys.readouterr().err) == (not is_installed)
