"""Fleets of 3.x under hostile conditions, in real processes: no record is lost, none out of order.

The simulation goes through thousands of such lives; here the heaviest are lived once, with real
processes, clocks, signals and requests.
"""

from __future__ import annotations

import base64
import json
import signal
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.process.clocks import Clocks
from tests.process.daemon import CHECKPOINT, GOOD, STATUS, shard_id, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld_protocol.conform.daemon import Script
    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

FAILOVER_S = 2.0
#: Of a fleet that notices within seconds what takes half a minute by default.
QUICK = {
    "failoverTimeMillis": str(int(FAILOVER_S * 1000)),
    "workerMetricsReporterFreqInMillis": "1000",
}
SHARDS = 4


class Seen(NamedTuple):
    """One record at one child."""

    at_s: float
    shard: str
    number: int
    data: str


def seen_by(runs: Mapping[str, Running]) -> list[Seen]:
    """What all children got, in the order of time."""
    found = []
    for run in runs.values():
        for child in run.children():
            shard = ""
            for entry in child:
                if entry.direction != "in":
                    continue
                message = json.loads(entry.what)
                shard = message.get("shardId", shard)
                found += [
                    Seen(
                        entry.at_s,
                        shard,
                        int(record["sequenceNumber"]),
                        base64.b64decode(record["data"]).decode(),
                    )
                    for record in message.get("records", ())
                ]
    return sorted(found)


def counts(runs: Mapping[str, Running], put: list[str]) -> dict[str, int]:
    """Records that nobody got, and such that were first seen after a later one of their shard."""
    seen = seen_by(runs)
    last: dict[str, int] = {}
    known: set[int] = set()
    late = 0
    for one in seen:
        if one.number in known:
            continue
        known.add(one.number)
        late += one.number < last.get(one.shard, 0)
        last[one.shard] = max(one.number, last.get(one.shard, 0))
    return {"lost": len(set(put) - {one.data for one in seen}), "out of order": late}


FINE = {"lost": 0, "out of order": 0}


def halves(app: Application) -> bool:
    return sorted(app.owners().values(), key=str) == ["w1", "w1", "w2", "w2"]


def fleet_of_two(app: Application, script: Script | None = None) -> dict[str, Running]:
    """Two workers, each with its half, and no more children than that."""
    runs = {name: app.start(script, worker=name) for name in ("w1", "w2")}
    wait_until(lambda: halves(app), "halves each")
    wait_until(
        lambda: all(served(run) == SHARDS // 2 for run in runs.values()), "children for the halves"
    )
    return runs


def served(run: Running) -> int:
    """Children that have begun and were not told that their lease is lost."""
    actions = run.actions()
    return actions.count("initialize") - actions.count("leaseLost")


def leader_of(app: Application) -> str:
    """Worker id of the owner of the lock."""
    return str(app.everything()["Leader"]["ownerName"])


def all_read(runs: Mapping[str, Running], put: list[str]) -> None:
    wait_until(lambda: counts(runs, put)["lost"] == 0, "all records were read")


def losses(runs: Mapping[str, Running]) -> int:
    """How often children were told that their lease was lost."""
    return sum(run.actions().count("leaseLost") for run in runs.values())


def unanswered(runs: Mapping[str, Running]) -> int:
    """Requests to which no answer came in time: enough of them in a row cost a lease, rightly."""
    return sum(run.output.count("ReadTimeoutError") for run in runs.values())


def keep_their_leases(
    app: Application,
    runs: Mapping[str, Running],
    acts: Sequence[Callable[[], object]],
) -> None:
    """Each of ``acts`` costs no worker a lease, nor the lead.

    A busy machine can stop the table's server for longer than the failover time. All acts are then
    repeated, as a lease that passes then says nothing about them.
    """
    for _ in range(5):
        wait_until(
            lambda: (
                all(owned(app, name) == served(run) > 0 for name, run in runs.items())
                and sum(map(served, runs.values())) == SHARDS
            ),
            "each lease has an owner that reads",
        )
        late, before = unanswered(runs), holding(app, runs)
        for act in acts:
            act()
        after = holding(app, runs)
        if unanswered(runs) == late:
            assert after == before, "".join(run.output for run in runs.values())
            return
    pytest.fail("The table's server answered late in each of 5 rounds")


def owned(app: Application, worker: str) -> int:
    return list(app.owners().values()).count(worker)


def holding(app: Application, runs: Mapping[str, Running]) -> dict[str, object]:
    """What changes when a lease passes, or the lead."""
    return {
        "owners": app.owners(),
        "leases lost": losses(runs),
        "read twice": doubled(runs),
        "leader": app.everything().get("Leader", {}).get("ownerName"),
    }


def doubled(runs: Mapping[str, Running]) -> int:
    """Records that came to children more than once."""
    numbers = [(one.shard, one.number) for one in seen_by(runs)]
    return len(numbers) - len(set(numbers))


def end(runs: Mapping[str, Running]) -> None:
    for run in runs.values():
        run.signal(signal.SIGTERM)
    for run in runs.values():
        assert run.ends() == 0, run.output


def reading_fleet(
    new_app: Callable[..., Application],
) -> tuple[Application, dict[str, Running], list[str]]:
    """A fleet of two that has read what was put, and that."""
    app = new_app(shards=SHARDS, **QUICK)
    put = app.put(100)
    runs = fleet_of_two(app)
    all_read(runs, put)
    return app, runs, put


def test_a_leader_that_stood_still_for_longer_than_the_failover_time_finds_another_one(
    new_app: Callable[..., Application],
) -> None:
    app, runs, put = reading_fleet(new_app)
    frozen = leader_of(app)
    (other,) = set(runs) - {frozen}
    runs[frozen].signal(signal.SIGSTOP)
    try:
        put += app.put(100)
        wait_until(lambda: set(app.owners().values()) == {other}, "the other one has all")
        assert leader_of(app) == other
        put += app.put(100)
        all_read(runs, put)
    finally:
        runs[frozen].signal(signal.SIGCONT)
    wait_until(lambda: halves(app), "halves each, again")
    put += app.put(100)
    all_read(runs, put)
    # The other one may have stood still in its turn on a busy machine: then it has lost the lock.
    assert leader_of(app) == other or "no longer leads the fleet" in runs[other].output
    assert counts(runs, put) == FINE
    end(runs)


def test_a_table_that_throttles_every_request_for_longer_than_the_failover_time_loses_nothing(
    new_app: Callable[..., Application],
) -> None:
    app, runs, put = reading_fleet(new_app)
    code = "ProvisionedThroughputExceededException"
    app.aws.control(faults=[{"service": "dynamodb", "contains": f'"{app.name}"', "code": code}])
    put += app.put(100)
    time.sleep(2 * FAILOVER_S)
    app.aws.control(faults=[])
    put += app.put(100)
    all_read(runs, put)
    wait_until(lambda: halves(app), "halves each, again")
    assert counts(runs, put) == FINE
    end(runs)


def test_a_leader_that_is_killed_while_it_hands_leases_over_leaves_none_unread(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=SHARDS, **QUICK)
    put = app.put(100)
    slow = {**GOOD, "shutdownRequested": [[["sleep", 30], CHECKPOINT, STATUS]]}
    runs = {"w1": app.start(slow, worker="w1")}
    all_read(runs, put)
    runs["w2"] = app.start(worker="w2")

    def under_way() -> list[str]:
        return [key for key, item in app.items().items() if item.get("checkpointOwner") == "w1"]

    moving = wait_until(under_way, "hand-offs are under way")
    put += app.put(100)
    runs["w1"].kill()
    assert set(moving) <= {shard_id(number) for number in range(SHARDS)}
    wait_until(lambda: set(app.owners().values()) == {"w2"}, "the other one has all")
    all_read(runs, put)
    assert under_way() == []
    wait_until(lambda: leader_of(app) == "w2", "it leads")
    assert counts(runs, put) == FINE
    del runs["w1"]
    end(runs)


def test_workers_whose_metrics_are_deleted_or_of_another_time_keep_their_leases(
    new_app: Callable[..., Application],
) -> None:
    """An operator deletes an item, and a worker's clock is a day ahead, then one behind."""
    # At 2 s a busy machine alone would cost leases.
    app = new_app(shards=SHARDS, **QUICK | {"failoverTimeMillis": "6000"})
    put = app.put(100)
    runs = fleet_of_two(app)
    all_read(runs, put)
    day_s = 24 * 3600

    def meddle(change: Callable[[str], object]) -> None:
        for name in runs:
            change(name)
        put.extend(app.put(50))
        now = time.time()
        wait_until(
            lambda: all(
                abs(app.everything().get(name, {}).get("lut", 0) - now) < day_s / 2 for name in runs
            ),
            "both have reported again",
        )
        all_read(runs, put)

    changes = (
        lambda name: app.dynamodb.delete_item(TableName=app.name, Key={"leaseKey": {"S": name}}),
        lambda name: app.change(name, lut=int(time.time()) + day_s),
        lambda name: app.change(name, lut=int(time.time()) - day_s),
    )
    keep_their_leases(app, runs, [partial(meddle, change) for change in changes])
    assert counts(runs, put) == FINE
    end(runs)


DAY_S = 24 * 3600.0


@pytest.mark.parametrize("generation", ["2.x", "3.x"])
def test_workers_with_other_clocks_share_and_replace_one_another(
    new_app: Callable[..., Application], generation: str
) -> None:
    """Days apart, then set anew while they work, the leader's too: nobody loses a lease by it."""
    promise = {"clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"}
    # At 2 s a busy machine alone would cost leases.
    failover_s = 6.0
    properties = QUICK | {"failoverTimeMillis": "6000"}
    properties |= promise if generation == "2.x" else {}
    app = new_app(shards=SHARDS, **properties)
    put = app.put(100)
    clocks = Clocks(app, w1=-3 * DAY_S, w2=600)
    runs = {name: clocks.start(app, name) for name in ("w1", "w2")}
    wait_until(lambda: halves(app), "halves each")
    all_read(runs, put)

    def jump(**offsets: float) -> None:
        clocks.jump(**offsets)
        put.extend(app.put(50))
        time.sleep(failover_s)
        all_read(runs, put)

    jumps = (partial(jump, w1=2 * DAY_S, w2=-DAY_S), partial(jump, w1=0, w2=900))
    keep_their_leases(app, runs, jumps)
    leader = leader_of(app) if generation == "3.x" else "w1"
    runs[leader].kill()
    put += app.put(100)
    (rest,) = set(runs) - {leader}
    wait_until(lambda: set(app.owners().values()) == {rest}, "the other one has all")
    all_read(runs, put)
    if generation == "3.x":
        wait_until(lambda: leader_of(app) == rest, "it leads")
    back = clocks.start(app, leader)
    runs[f"{leader} again"] = back
    wait_until(lambda: halves(app), "halves each, again")
    put += app.put(100)
    all_read(runs, put)
    assert counts(runs, put) == FINE
    del runs[leader]
    end(runs)
