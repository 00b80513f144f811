"""Workers and commands on machines whose clocks are wrong, in real processes.

The embedded AWS refuses what is signed more than five minutes off, as AWS does, where a test says so.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.clocks import Clocks
from tests.process.daemon import shard_id, wait_until
from tests.process.test_explain import at, properties_of, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

FAST = {"failoverTimeMillis": "4000", "workerMetricsReporterFreqInMillis": "1000"}
OLD = {"clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"}


def refuse(app: Application, **more: Any) -> None:
    """Requests that are signed more than five minutes off are refused from now on."""
    rule = {"code": "InvalidSignatureException", "message": "Signature expired", **more}
    app.aws.control(faults=[{"signed_off_s": 300.0, **rule}])


def refused(app: Application) -> int:
    """Requests that were refused so far."""
    return sum(app.aws.control()["faults"].values())


def all_read(run: Running, put: list[str]) -> None:
    def read() -> set[str]:
        return {one["data"] for one in run.records()}

    wait_until(lambda: len(read()) >= len(put), "all records were read")


@pytest.mark.parametrize("ahead_s", [1200.0, -1200.0])
@pytest.mark.parametrize("mode", ["POLLING", "FANOUT"])
def test_a_worker_whose_requests_are_refused_signs_at_the_time_of_aws(
    new_app: Callable[..., Application], ahead_s: float, mode: str
) -> None:
    app = new_app(1, **FAST, retrievalMode=mode)
    refuse(app)
    put = app.put(10)
    run = Clocks(app, w1=ahead_s).start(app, "w1")
    all_read(run, put)
    before = refused(app)
    put += app.put(10)
    all_read(run, put)
    side = "ahead of" if ahead_s > 0 else "behind"
    wait_until(
        lambda: re.search(f"The clock of this machine is 1[12][0-9][0-9] s {side} AWS", run.output),
        "the warning",
    )
    assert refused(app) == before
    assert run.stop() == 0


def test_a_worker_whose_clock_jumps_reads_on_and_loses_no_lease(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2, **FAST)
    refuse(app)
    put = app.put(10)
    clocks = Clocks(app, w1=0.0)
    run = clocks.start(app, "w1")
    all_read(run, put)
    for ahead_s in (600.0, -86_400.0, 0.0):
        clocks.jump(w1=ahead_s)
        put += app.put(10)
        all_read(run, put)
    assert refused(app) > 0
    assert "leaseLost" not in run.actions()
    assert len(run.records()) == len(put)
    assert run.stop() == 0


@pytest.mark.parametrize("ahead_s", [300.0, -300.0])
def test_a_worker_whose_clock_is_wrong_shares_a_fleet_and_explain_names_it(
    new_app: Callable[..., Application], ahead_s: float
) -> None:
    app = new_app(4, **FAST)
    clocks = Clocks(app, w1=0.0, w2=ahead_s)
    runs = {name: clocks.start(app, name) for name in ("w1", "w2")}
    wait_until(
        lambda: sorted(app.owners().values(), key=str) == ["w1", "w1", "w2", "w2"], "halves each"
    )

    def reported() -> float:
        return float(app.everything()["w2"]["lut"]) - time.time()

    wait_until(lambda: reported() > -30, "the report of the other one is no older than it is")
    wait_until(lambda: wrong_clocks(app) == ["w2"], "explain names it")
    for run in runs.values():
        assert run.stop() == 0


def wrong_clocks(app: Application) -> list[str]:
    """Workers whose clocks ``explain`` calls wrong."""
    found = told(app, "--once", **FAST)["fleet"]
    return [one["subject"] for one in found if one["verdict"] == "WRONG_CLOCK"]


@pytest.mark.parametrize(
    ("command_s", "holder_s"), [(1200.0, 0.0), (-1200.0, 0.0), (0.0, 1200.0), (0.0, -1200.0)]
)
def test_a_pause_is_asked_for_and_kept_whosever_clock_is_wrong(
    new_app: Callable[..., Application], command_s: float, holder_s: float
) -> None:
    app = new_app(1, **FAST)
    put = app.put(5)
    clocks = Clocks(app, w1=holder_s, command=command_s)
    run = clocks.start(app, "w1")
    all_read(run, put)
    wait_until(lambda: at(app) is not None, "its child has checkpointed")
    answer = steered(app, clocks, "pause", shard_id(0), "--for", "PT10M", "--execute")
    assert [one["done"] for one in answer["leases"]] == [True]
    until_s = app.items()[shard_id(0)]["kclMldPausedUntil"] - time.time()
    assert 300 < until_s < 900
    app.put(5)
    time.sleep(2)
    assert len(run.records()) == 5
    steered(app, clocks, "resume", shard_id(0), "--execute")
    wait_until(lambda: len(run.records()) == 10, "it is read again")
    assert run.stop() == 0


def steered(app: Application, clocks: Clocks, *words: str) -> dict[str, Any]:
    """What a command that changes leases prints, by its own clock."""
    file = str(properties_of(app, **FAST))
    done = subprocess.run(
        [
            *clocks.launcher("command"),
            sys.executable,
            "-m",
            "kcl_mld",
            "leases",
            *words,
            "-o",
            "json",
            "-p",
            file,
        ],
        check=False,
        env=app.aws.environment_for_child(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, (done.stderr, done.stdout)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.mark.parametrize("generation", ["2.x", "3.x"])
@pytest.mark.parametrize("ahead_s", [120.0, -120.0])
@pytest.mark.proof
def test_a_fleet_and_its_commands_whose_clocks_are_all_off_alike_work_as_any_other(
    new_app: Callable[..., Application], ahead_s: float, generation: str
) -> None:
    """As on hosts that follow one wrong server of the time: nothing but AWS shows it."""
    app = new_app(4, **FAST, **(OLD if generation == "2.x" else {}))
    put = app.put(20)
    clocks = Clocks(app, w1=ahead_s, w2=ahead_s, command=ahead_s)
    runs = {name: clocks.start(app, name) for name in ("w1", "w2")}
    wait_until(
        lambda: sorted(app.owners().values(), key=str) == ["w1", "w1", "w2", "w2"], "halves each"
    )
    held = [key for key, owner in app.owners().items() if owner == "w2"]
    runs["w1"].kill()
    wait_until(lambda: set(app.owners().values()) == {"w2"}, "the other one has all")
    put += app.put(20)
    wait_until(
        lambda: len({one["data"] for run in runs.values() for one in run.records()}) == len(put),
        "all records were read",
    )
    answer = steered(app, clocks, "pause", held[0], "--for", "PT10M", "--execute")
    assert [one["done"] for one in answer["leases"]] == [True]
    until_s = app.items()[held[0]]["kclMldPausedUntil"] - time.time()
    assert 400 < until_s < 800
    steered(app, clocks, "resume", held[0], "--execute")
    if generation == "3.x":
        assert "w1" not in app.everything()
    assert runs["w2"].stop() == 0, runs["w2"].output
    assert set(app.owners().values()) == {None}
