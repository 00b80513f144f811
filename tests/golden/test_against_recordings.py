"""Our whole worker in the recorded scenarios: the same messages, the same rows in the table."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kcl_mld.config.build import build_config
from kcl_mld.errors import ConfigError
from kcl_mld.leases.model.lease_item import STREAM_MARK
from kcl_mld.leases.model.lease_request import HOLDER
from kcl_mld.leases.model.newcomer import NEWCOMER
from kcl_mld.leases.model.reading import READ_UNTIL
from kcl_mld_protocol import transcripts
from tests.fakes.children import ScriptedChild, ScriptedChildren
from tests.golden.replay import DATA, ONLY_3X, TABLES, Recording, ReplayWorld
from tests.sim.loop import run


def shard(number: int) -> str:
    return f"shardId-{number:012d}"


#: Scenario -> shards at the start and the parents of each split or merge.
SCENARIOS: dict[str, tuple[int, list[tuple[str, ...]]]] = {
    "arn": (1, []),
    "cleanup": (1, [(shard(0),)]),
    "cloudwatch": (1, []),
    "crash": (1, []),
    "crash_once": (1, []),
    "empty_list": (1, []),
    "errors": (1, []),
    "garbage": (1, []),
    "gb_bogus": (1, []),
    "gb_caps": (1, []),
    "gb_ckbadtype": (1, []),
    "gb_extra": (1, []),
    "gb_noaction": (1, []),
    "gb_null": (1, []),
    "gb_nullresp": (1, []),
    "gb_number": (1, []),
    "gb_partial": (1, []),
    "hang": (1, []),
    "hang_notimeout": (1, []),
    "init_ckpt": (1, []),
    "init_crash": (1, []),
    "kpl_agg": (1, []),
    "latest": (1, []),
    "lease_deleted": (1, []),
    "life": (2, [(shard(0),), (shard(2), shard(3))]),
    "nograce": (1, []),
    "options": (1, []),
    "restart": (2, []),
    "shardend_nock": (1, [(shard(0),)]),
    "wrongstatus": (1, []),
}
#: Children of a worker that handed a lease over while it ran, which is a matter of 3.x.
HANDED_OVER = {"restart-w2-2"}

#: Decided differences: what our children hear after the recorded messages.
STOP = ["shutdownRequested", "leaseLost"]
MORE_IS_HEARD = {
    # Without shutdownGraceMillis Java's children never hear of the stop.
    "nograce-w1-1": STOP,
    "init_ckpt-w1-1": STOP,
    # A line `null` kills the Java daemon; here it is skipped like other noise.
    "garbage-w1-1": ["checkpoint", *STOP],
    "gb_null-w1-1": ["checkpoint", *STOP],
}
#: Decided differences: (Java's exit code, ours).
EXIT_CODES = {
    # Java reports every stop by SIGTERM as cut short; here a complete one is a success.
    "garbage": (1, 0),
    "gb_null": (1, 0),
    # Java asks a child that is gone for ever; here its shard gets three more, then the daemon ends.
    "shardend_nock": (143, 1),
}
#: Neither was the stop complete in ours.
CUT_SHORT = {"errors", "hang_notimeout"}


class Replayed:
    """One scenario, run."""

    def __init__(self, name: str) -> None:
        shards, resharding = SCENARIOS[name]
        self.world = ReplayWorld(name, resharding)
        self.recordings: dict[str, Recording] = {}
        self.codes: dict[str, int] = {}
        self.stages: list[tuple[str, list[dict[str, Any]]]] = []
        run(self._run(name, shards))

    async def _run(self, name: str, shards: int) -> None:
        children = [
            Recording.load(one)
            for one in transcripts.names()
            if one.rpartition("-w")[0] == name and one not in HANDED_OVER
        ]
        self.recordings = {child.name: child for child in children}
        workers = sorted({child.name.split("-")[-2] for child in children})
        file = DATA / "golden" / name / "w1.properties"
        config = build_config(file.read_bytes(), str(file), worker_id="w1").require()
        self.world.create_stream(config.stream.name, shards)
        for worker in workers:
            mine = [child for child in children if child.name.split("-")[-2] == worker]
            self.codes[worker] = await self.world.run(worker, mine)
            self.stages.append((worker, self.world.leases()))


@pytest.fixture(scope="module")
def replayed() -> Any:
    """Runs each scenario once."""
    done: dict[str, Replayed] = {}

    def replay(name: str) -> Replayed:
        if name not in done:
            done[name] = Replayed(name)
        return done[name]

    return replay


def ordered(line: bytes) -> Any:
    """A message as nested pairs, so that the order of its fields counts."""
    return json.loads(line, object_pairs_hook=lambda pairs: tuple(map(tuple, pairs)))


def same_but_for_times(line: bytes) -> Any:
    """A message without the values that depend on the clock; their types stay."""

    def pairs(fields: list[tuple[str, Any]]) -> Any:
        timed = {"approximateArrivalTimestamp", "millisBehindLatest"}
        return tuple(
            (name, type(value).__name__ if name in timed else value) for name, value in fields
        )

    return json.loads(line, object_pairs_hook=pairs)


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_children_hear_what_the_recorded_children_heard(replayed: Any, name: str) -> None:
    scenario = replayed(name)
    assert set(scenario.world.exchanges) == set(scenario.recordings)
    for child, recording in scenario.recordings.items():
        ours = scenario.world.exchanges[child]
        wanted = [
            same_but_for_times(scenario.world.numbers.translate(step.line))
            for step in recording.steps
        ]
        assert [same_but_for_times(line) for line in ours[: len(wanted)]] == wanted
        more = [json.loads(line)["action"] for line in ours[len(wanted) :]]
        assert more == MORE_IS_HEARD.get(child, [])


@pytest.mark.parametrize("name", SCENARIOS)
def test_our_lines_are_written_as_jackson_writes_them(replayed: Any, name: str) -> None:
    for lines in replayed(name).world.exchanges.values():
        for line in lines:
            compact = json.dumps(json.loads(line), separators=(",", ":"), ensure_ascii=False)
            assert line.decode() == compact


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_daemon_ends_as_recorded(replayed: Any, name: str) -> None:
    events = (DATA / "golden" / name / "events.txt").read_text().splitlines()
    recorded = [line.split() for line in events if " exit rc=" in line]
    for _, worker, _, code, *_ in recorded:
        java = int(code.removeprefix("rc="))
        wanted = (java, {1: 1, 143: 143 if name in CUT_SHORT else 0}[java])
        assert (java, replayed(name).codes[worker]) == EXIT_CODES.get(name, wanted)


# --- the table

#: Stages of the recordings that ours reach: scenario, stage, worker, before or after its stop.
STAGES = [
    *(
        (recording["scenario"], recording["stage"], "w1", recording["stage"].split("-")[0])
        for recording in TABLES
        if recording["stage"] in {"before-stop", "after-stop"}
        and recording["scenario"] in SCENARIOS
        # `null` killed the Java daemon before the checkpoint that we take
        and recording["scenario"] not in {"garbage", "gb_null"}
    ),
    ("arn", "end", "w1", "after"),
    ("latest", "end", "w1", "after"),
    ("options", "end-moto", "w1", "after"),
    ("cleanup", "children-running", "w1", "before"),
    ("kpl_agg", "checkpointed-mid-aggregate", "w1", "before"),
    ("kpl_agg", "stopped", "w1", "after"),
    ("kpl_agg", "resumed", "w2", "before"),
    ("life", "09-merged-child-running", "w1", "before"),
    ("life", "10-after-lease-cleanup", "w1", "before"),
    ("life", "11-after-graceful-SIGTERM", "w1", "after"),
    ("lease_deleted", "deleted", "w1", "after"),
    ("restart", "stopped", "w1", "after"),
    ("shardend_nock", "20s-after-shardEnded", "w1", "after"),
]


def recorded_leases(scenario: str, stage: str) -> dict[str, dict[str, Any]]:
    (found,) = [r for r in TABLES if (r["scenario"], r["stage"]) == (scenario, stage)]
    (rows,) = found["tables"].values()
    return {row["leaseKey"]["S"]: row for row in rows if "leaseCounter" in row}


def attributes(row: dict[str, Any]) -> dict[str, str]:
    """Type by name, minus what only 3.x or only we write."""
    return {
        name: next(iter(value))
        for name, value in row.items()
        if name not in ONLY_3X and name not in (STREAM_MARK, HOLDER, NEWCOMER, READ_UNTIL)
    }


def values(row: dict[str, Any], translate: Any = lambda text: text) -> dict[str, Any]:
    """What depends neither on timing nor on where an emulator cuts a hash range."""
    compared = {}
    for name in ("checkpoint", "checkpointSubSequenceNumber", "parentShardId", "childShardIds",
                 "ownerSwitchesSinceCheckpoint", "entityType"):  # fmt: skip
        if name in row:
            ((kind, value),) = row[name].items()
            compared[name] = sorted(value) if kind == "SS" else translate(value)
    return compared


@pytest.mark.parametrize(
    ("name", "stage", "worker", "when"), STAGES, ids=[f"{s[0]}-{s[1]}" for s in STAGES]
)
def test_the_rows_are_those_of_the_recorded_table(
    replayed: Any, name: str, stage: str, worker: str, when: str
) -> None:
    scenario = replayed(name)
    stages = dict(scenario.stages)
    rows = stages[worker]
    if when == "before":  # nothing was noted where the daemon ended by itself
        rows = scenario.world.before_stop.get(worker, rows)
    ours = {row["leaseKey"]["S"]: row for row in rows}
    theirs = recorded_leases(name, stage)
    assert set(ours) == set(theirs)
    for key, row in theirs.items():
        wanted, found = attributes(row), attributes(ours[key])
        if rows is stages[worker] and "leaseOwner" not in found:
            del wanted["leaseOwner"]  # leases are released, where Java lets them expire
        assert found == wanted
        assert values(ours[key]) == values(row, scenario.world.translate)


@pytest.mark.parametrize(
    ("stage", "last_parents"),
    [("06-right-after-SHARD_END", (0,)), ("08-after-merge-SHARD_END", (2, 3))],
)
def test_the_rows_right_after_the_end_of_a_shard_are_those_of_the_recorded_table(
    replayed: Any, stage: str, last_parents: tuple[int, ...]
) -> None:
    world = replayed("life").world
    # With two parents, the later end.
    snapshots = [world.after_end[shard(parent)] for parent in last_parents]
    rows = max(snapshots, key=lambda found: sum("SHARD_END" in str(row) for row in found))
    ours = {row["leaseKey"]["S"]: row for row in rows}
    theirs = recorded_leases("life", stage)
    assert set(ours) == set(theirs)
    for key, row in theirs.items():
        assert attributes(ours[key]) == attributes(row)
        compared, wanted = values(ours[key]), values(row, world.translate)
        if key == shard(1):  # read on meanwhile, at its own pace
            del compared["checkpoint"], wanted["checkpoint"]
        assert compared == wanted


def test_a_malformed_timeout_is_refused_at_the_start() -> None:
    file = DATA / "golden" / "timeout_malformed" / "w1.properties"
    with pytest.raises(ConfigError, match="timeoutInSeconds"):
        build_config(file.read_bytes(), str(file), worker_id="w1").require()


@pytest.mark.parametrize(
    ("name", "refuses"), [("nosuchexe", FileNotFoundError(2, "No such file")), ("exe_exits", None)]
)
def test_a_program_that_is_none_ends_the_daemon_as_recorded(
    name: str, refuses: OSError | None
) -> None:
    async def main() -> ReplayWorld:
        world = ReplayWorld(name)
        world.create_stream(name, 1)
        launcher = ScriptedChildren(ends_at_once)
        launcher.refuses = refuses
        assert await world.run("w1", [], launcher) == 1
        return world

    async def ends_at_once(_child: ScriptedChild) -> int:
        return 0

    world = run(main())
    (row,) = world.leases()
    (theirs,) = recorded_leases(name, "after-stop").values()
    assert attributes(row) | {"leaseOwner": "S"} == attributes(theirs)
    assert values(row) == values(theirs)


def test_every_recorded_conversation_of_one_worker_is_replayed() -> None:
    left_out = {
        "two_workers",  # the hand-over of leases while both workers run is a matter of 3.x
        "timeout_malformed",  # refused, see above
    }
    of = {name.rpartition("-w")[0] for name in transcripts.names()}
    assert of == set(SCENARIOS) | left_out
