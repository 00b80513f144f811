"""A rewind to before a split: what changes together, and when it is refused."""

from dataclasses import replace

import pytest

from kcl_mld.errors import MoveRefused
from kcl_mld.kernel.model.sequence import SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.observe.model.fleet_snapshot import StreamSnapshot
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.ops.rules.lineage import MOST_ROWS, missing_rows, plan_lineage
from kcl_mld.ops.rules.steering import SteerWay
from kcl_mld.streams.model.shard import HashRange, Shard
from tests.fakes.fleet_looks import snapshot
from tests.fakes.lease_rows import ORDERS
from tests.fakes.lease_world import lease

NINE = ExtendedSequenceNumber("9")


def name(number):
    return f"shardId-{number:012d}"


def shard(number, parent=None, other=None):
    keys = HashRange(number * 100, number * 100 + 99)
    parents = {"parent_shard_id": parent, "adjacent_parent_shard_id": other}
    named = {key: None if one is None else name(one) for key, one in parents.items()}
    return Shard(name(number), keys, "1", **named)


def row(number, *parents, **fields):
    return lease(number, parent_shard_ids=tuple(map(name, parents)), **fields)


#: 0 is split into 1 and 2; 2 and 3 are merged into 4; 5 stands alone.
SHARDS = (shard(0), shard(1, 0), shard(2, 0), shard(3), shard(4, 2, 3), shard(5))
ROWS = (
    row(0, checkpoint=SHARD_END),
    row(1, 0, checkpoint=NINE),
    row(2, 0, checkpoint=SHARD_END),
    row(3, checkpoint=SHARD_END),
    row(4, 2, 3, checkpoint=NINE, lease_owner="w1", lease_counter=5),
    row(5, checkpoint=NINE, lease_owner="w2", holder="w2", lease_counter=5),
)
STREAM = StreamSnapshot(name="s", shards=SHARDS)


def watched(*rows, living=(), streams=(STREAM,)):
    before = [
        replace(one, lease_counter=one.lease_counter - 1) if one.lease_owner in living else one
        for one in rows
    ]
    return Snapshots(
        (snapshot(0.0, *before, streams=streams), snapshot(10.1, *rows, streams=streams))
    )


def planned(watch, *, creates=False, **roots):
    named = {name(int(key[1:])): at for key, at in roots.items()}
    steps = plan_lineage(watch, named, 10.0, creates=creates)
    return {int(one.lease.shard_id[-3:]): (one.way, one.position) for one in steps}, steps


def test_descendants_begin_anew_behind_the_shard_that_is_read_again():
    together = SteerWay.TOGETHER
    steps, _ = planned(watched(*ROWS), s0=NINE)
    assert steps == {
        0: (together, NINE),
        1: (together, TRIM_HORIZON),
        2: (together, TRIM_HORIZON),
        4: (together, TRIM_HORIZON),
    }
    steps, _ = planned(watched(*ROWS), s3=TRIM_HORIZON, s2=NINE)
    assert {number: at for number, (_way, at) in steps.items()} == {
        2: NINE,
        3: TRIM_HORIZON,
        4: TRIM_HORIZON,
    }
    # A shard and its parent: the parent decides.
    steps, _ = planned(watched(*ROWS), s0=NINE, s2=NINE)
    assert steps[2] == (together, TRIM_HORIZON)
    assert planned(watched(*ROWS))[0] == {}


def test_rows_that_were_deleted_are_made_again():
    marked = [replace(one, stream_mark="1:r:s") for one in ROWS if one.shard_id != name(2)]
    watch = watched(*marked)
    missing = missing_rows(watch)
    assert missing == {
        name(2): lease(
            2,
            parent_shard_ids=(name(0),),
            hash_range=HashRange(200, 299),
            stream_mark="1:r:s",
        )
    }
    _, steps = planned(watch, s0=NINE)
    notes = {one.lease.shard_id: one.notes for one in steps}
    assert notes[name(2)] == ("its row is made again",)
    assert notes[name(4)] == ("it begins again",)
    _, (root, _child) = planned(watch, s2=NINE)
    assert (root.lease, root.position) == (missing[name(2)], NINE)


def test_no_row_is_made_of_a_shard_that_no_worker_has_begun():
    """Else it would not wait for its other parent, which has no row yet either."""
    # 6 and 7 are merged into 8; 9 was split into 7 and 10.
    shards = (*SHARDS[:4], shard(6, 0), shard(7, 9), shard(8, 6, 7), shard(9), shard(10, 9))
    stream = StreamSnapshot(name="s", shards=shards)
    rows = (row(0, checkpoint=SHARD_END), row(6, 0, checkpoint=NINE), row(9, checkpoint=NINE))
    steps, _ = planned(watched(*rows, streams=(stream,)), s0=NINE)
    assert sorted(steps) == [0, 6]


def test_the_other_parent_of_a_merge_is_made_again_as_finished():
    """Without its row a Java worker never ends the one that is read again."""
    watch = watched(*(one for one in ROWS if one.shard_id != name(3)))
    steps, (_, beside, _) = planned(watch, s2=NINE)
    assert steps[3] == (SteerWay.TOGETHER, SHARD_END)
    assert sorted(steps) == [2, 3, 4]
    assert (beside.lease.shard_id, beside.lease.child_shard_ids) == (name(3), (name(4),))
    assert beside.notes[0].startswith("its row is made again, as finished")
    # It is itself read again, or past retention.
    assert planned(watch, s2=NINE, s3=NINE)[0][3] == (SteerWay.TOGETHER, NINE)
    trimmed = StreamSnapshot(name="s", shards=tuple(one for one in SHARDS if one != shard(3)))
    watch = watched(*(one for one in ROWS if one.shard_id != name(3)), streams=(trimmed,))
    assert sorted(planned(watch, s2=NINE)[0]) == [2, 4]


@pytest.mark.parametrize("position", [TRIM_HORIZON, NINE])
def test_a_shard_that_no_worker_has_begun_is_no_place_to_begin(position):
    # Its parents are still read, or it has none; the table may be empty.
    for rows, root in ((ROWS[:3], "s4"), (ROWS[:5], "s5"), ((), "s0")):
        _, (step,) = planned(watched(*rows), **{root: position})
        assert step.way is SteerWay.REFUSED
        assert step.why.startswith("no worker has begun it: they make its row when they start")


def test_a_row_that_was_deleted_is_made_where_it_is_asked_for():
    together = (SteerWay.TOGETHER, NINE)
    # It stands alone, or its parents are finished and have rows.
    assert planned(watched(*ROWS[:5]), creates=True, s5=NINE)[0] == {5: together}
    assert planned(watched(*ROWS[:4]), creates=True, s4=NINE)[0] == {4: together}
    # A descendant has begun: the lineage.
    assert sorted(planned(watched(*ROWS[1:]), creates=True, s0=NINE)[0]) == [0, 1, 2, 4]


@pytest.mark.parametrize(
    ("rows", "root", "why"),
    [
        ((), "s5", "the table has no row of its stream"),
        ((lease(9, lease_key="x", stream_identifier="other"),), "s5", "the table has no row"),
        (ROWS[:2] + ROWS[3:4], "s4", f"its parent {name(2)} has no row either"),
        ((replace(ROWS[2], checkpoint=NINE), ROWS[3]), "s4", f"and {name(2)} is not: reset that"),
    ],
)
def test_a_row_is_not_made_where_its_shard_would_not_wait(rows, root, why):
    _, (step,) = planned(watched(*rows), creates=True, **{root: NINE})
    assert step.way is SteerWay.REFUSED
    assert why in step.why


def test_a_parent_and_its_child_that_were_both_deleted_are_made_together():
    rows = (*ROWS[:2], ROWS[3], ROWS[5])
    steps, _ = planned(watched(*rows), creates=True, s2=NINE, s4=TRIM_HORIZON)
    assert steps == {2: (SteerWay.TOGETHER, NINE), 4: (SteerWay.TOGETHER, TRIM_HORIZON)}
    steps, (_, child) = planned(watched(*rows), creates=True, s2=NINE, s4=NINE)
    assert steps[2] == (SteerWay.TOGETHER, NINE)
    assert child.why.startswith("it begins when its parents are finished")


def test_a_finished_shard_goes_to_a_number_only_behind_finished_parents():
    rows = (row(0, checkpoint=NINE), row(1, 0, checkpoint=SHARD_END))
    _, (step,) = planned(watched(*rows), s1=NINE)
    assert (step.way, step.why) == (
        SteerWay.REFUSED,
        f"it begins when its parents are finished, and {name(0)} is not: reset that one",
    )
    _, (step,) = planned(watched(*rows), s1=TRIM_HORIZON)
    assert step.way is SteerWay.TOGETHER


def test_rows_of_other_streams_are_none_of_it():
    other = replace(row(7, 0), lease_key=f"{ORDERS.identifier}:x", stream_identifier="1:o:1")
    stream = StreamSnapshot(name="orders", identifier=ORDERS.identifier, shards=(shard(0),))
    watch = watched(*ROWS, other, streams=(STREAM, stream, StreamSnapshot(name="unknown")))
    assert 7 not in planned(watch, s0=NINE)[0]
    assert list(missing_rows(watch)) == [f"{ORDERS.identifier}:{name(0)}"]


@pytest.mark.parametrize(
    ("holder", "why"),
    [(None, "w1 renews it and is not a kcl-mld worker"), ("w1", "w1 renews it: stop all workers")],
)
def test_no_descendant_may_have_a_living_owner(holder, why):
    rows = [replace(one, holder=holder) if one.lease_owner == "w1" else one for one in ROWS]
    _, steps = planned(watched(*rows, living=("w1", "w2")), s2=NINE)
    assert [one.way for one in steps] == [SteerWay.TOGETHER, SteerWay.REFUSED]
    assert why in steps[1].why


def test_a_shard_past_retention_cannot_be_read_again():
    stream = StreamSnapshot(name="s", shards=SHARDS[1:])
    _, steps = planned(watched(*ROWS, streams=(stream,)), s0=NINE)
    assert steps[0].way is SteerWay.REFUSED
    assert "past retention" in steps[0].why


def test_a_transaction_takes_no_more():
    children = [row(number + 10, 0) for number in range(MOST_ROWS)]
    stream = StreamSnapshot(name="s", shards=(shard(0), *(shard(n + 10, 0) for n in range(100))))
    with pytest.raises(MoveRefused, match="101 leases have to change together"):
        planned(watched(ROWS[0], *children, streams=(stream,)), s0=NINE)
    fewer = StreamSnapshot(name="s", shards=stream.shards[:-1])
    assert len(planned(watched(ROWS[0], *children[:-1], streams=(fewer,)), s0=NINE)[0]) == MOST_ROWS
