"""What may be asked of which lease, and which requests a holder has to carry out."""

from dataclasses import replace

import pytest

from kcl_mld.kernel.model.sequence import LATEST, SHARD_END, TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.containment import FailureNote, PositionRange
from kcl_mld.leases.model.lease_request import LeaseRequest, SteerVerb
from kcl_mld.leases.rules.pausing import is_paused, paused_by
from kcl_mld.leases.rules.requests import asked_facts, asked_text, due_request
from kcl_mld.observe.model.fleet_snapshot import StreamSnapshot
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.ops.rules.steering import SteerWay, foreign_owners, plan_step, plan_withdrawal
from kcl_mld.streams.model.shard import HashRange, Shard
from tests.fakes.fleet_looks import snapshot
from tests.fakes.lease_world import lease

REQUEST = LeaseRequest(request_id="r", verb="release", holder="me", expires_s=100.0)
FIVE, NINE = ExtendedSequenceNumber("5"), ExtendedSequenceNumber("9")
FREE = lease(checkpoint=NINE)
OURS = lease(lease_owner="me", holder="me", lease_counter=5, checkpoint=NINE)
JAVA = lease(1, lease_owner="java", lease_counter=5, checkpoint=NINE)


def watched(*rows, living=(), span_s=10.0):
    """Two looks; counters of living owners moved between them."""
    before = [
        replace(row, lease_counter=row.lease_counter - 1) if row.actual_owner in living else row
        for row in rows
    ]
    return Snapshots((snapshot(0.0, *before), snapshot(span_s + 0.1, *rows)))


def planned(row, verb, *others, position=None, **how):
    return plan_step(watched(row, *others, **how), row, verb, 10.0, position)


@pytest.mark.parametrize(
    "fields",
    [
        {"request": None},
        {"request": replace(REQUEST, expires_s=50.0)},
        {"request": replace(REQUEST, holder="other")},
        {"checkpoint_owner": "me", "lease_owner": "next"},
        {"checkpoint": SHARD_END},
    ],
)
def test_a_request_is_due_unless_it_is_void(fields):
    row = replace(OURS, request=REQUEST)
    assert due_request(row, 50.0) is REQUEST
    assert due_request(replace(row, **fields), 50.0) is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (None, "it is paused"),
        ({"verb": "reset", "by": "ann@host"}, "it is paused"),
        ({"verb": "pause"}, "it is paused"),
        ({"verb": "pause", "by": "ann@host"}, "paused by ann@host"),
        ({"verb": "pause", "by": "ann@host", "reason": "upgrade"}, "paused by ann@host (upgrade)"),
    ],
)
def test_who_paused_it_is_said_as_far_as_the_row_knows(fields, said):
    note = fields and LeaseRequest(request_id="r", **fields)
    assert paused_by(replace(OURS, paused_until_s=100.0, steered=note)) == said


def test_what_is_asked_is_said_with_who_and_until_when():
    asked = replace(REQUEST, by="ann@host")
    row = replace(OURS, request=asked)
    assert (
        asked_text(row, asked, 50.0) == "me is asked to release it, by ann@host, for another 50 s"
    )
    assert asked_text(row, REQUEST, 100.0) == (
        "me is asked to release it, by somebody; that is void, its time is over"
    )
    moved = replace(row, lease_owner="other")
    assert asked_text(moved, asked, 50.0).endswith("by ann@host; that is void while other has it")
    free = replace(row, lease_owner=None)
    assert asked_text(free, asked, 50.0).endswith("that is void while nobody has it")
    others = [
        replace(JAVA, lease_owner="me", request=asked),
        lease(2, lease_owner="me", request=replace(asked, request_id="r2", verb="pause")),
    ]
    assert list(asked_facts([*others, row, FREE, moved], 50.0)) == [
        (
            f"{row.lease_key} and 1 more: me is asked to release it, by ann@host, for another 50 s; "
            "kcl-mld leases withdraw takes it back"
        ),
        (
            f"{others[1].lease_key}: me is asked to pause it, by ann@host, for another 50 s; kcl-mld "
            "leases withdraw takes it back"
        ),
    ]
    step = plan_withdrawal(row, 50.0)
    assert (step.way, step.notes) == (SteerWay.WRITE, (asked_text(row, asked, 50.0),))
    none = plan_withdrawal(OURS, 50.0)
    assert (none.way, none.why) == (SteerWay.NONE, "nothing is asked")


def test_a_pause_ends():
    row = replace(OURS, paused_until_s=100.0)
    assert is_paused(row, 99.0)
    assert not is_paused(row, 100.0)
    assert not is_paused(OURS, 0.0)


@pytest.mark.parametrize(
    ("row", "how", "way", "why"),
    [
        (FREE, {}, SteerWay.WRITE, ""),
        (OURS, {}, SteerWay.WRITE, ""),
        (JAVA, {}, SteerWay.WRITE, ""),
        (OURS, {"living": ("me",)}, SteerWay.ASK, ""),
        (OURS, {"span_s": 9.0}, SteerWay.REFUSED, "was not seen for failoverTimeMillis"),
        (
            JAVA,
            {"living": ("java",)},
            SteerWay.REFUSED,
            "java renews it and is not a kcl-mld worker",
        ),
        (replace(OURS, checkpoint=SHARD_END), {}, SteerWay.REFUSED, "read to its end"),
        (
            replace(OURS, checkpoint_owner="old"),
            {"living": ("old",)},
            SteerWay.REFUSED,
            "old hands it over to me",
        ),
        (replace(OURS, checkpoint_owner="old"), {}, SteerWay.WRITE, ""),
    ],
)
def test_who_changes_a_row(row, how, way, why):
    step = planned(row, SteerVerb.RESET, **how)
    assert step.way is way
    assert why in step.why
    assert bool(why) == bool(step.why)


def test_an_owner_that_changed_between_the_looks_is_not_at_rest():
    before = replace(OURS, lease_owner="other")
    watch = Snapshots((snapshot(0.0, before), snapshot(10.1, OURS)))
    assert plan_step(watch, OURS, SteerVerb.RESET, 10.0).way is SteerWay.ASK


@pytest.mark.parametrize(
    ("row", "verb", "how", "way", "why"),
    [
        (FREE, SteerVerb.RELEASE, {}, SteerWay.NONE, "no owner"),
        (OURS, SteerVerb.RELEASE, {}, SteerWay.WRITE, ""),
        (OURS, SteerVerb.RELEASE, {"living": ("me",)}, SteerWay.ASK, ""),
        (FREE, SteerVerb.PAUSE, {}, SteerWay.REFUSED, "no worker owns it"),
        (OURS, SteerVerb.PAUSE, {}, SteerWay.REFUSED, "me has not renewed it for"),
        (OURS, SteerVerb.PAUSE, {}, SteerWay.REFUSED, "or can't write the table"),
        (OURS, SteerVerb.PAUSE, {"living": ("me",)}, SteerWay.ASK, ""),
        (OURS, SteerVerb.RESUME, {"living": ("me",)}, SteerWay.NONE, "not paused"),
        (replace(OURS, paused_until_s=1.0), SteerVerb.RESUME, {}, SteerWay.WRITE, ""),
    ],
)
def test_what_a_verb_needs(row, verb, how, way, why):
    step = planned(row, verb, **how)
    assert step.way is way
    assert why in step.why


def test_nothing_is_paused_beside_living_workers_that_are_not_ours():
    step = planned(OURS, SteerVerb.PAUSE, JAVA, living=("me", "java"))
    assert step.way is SteerWay.REFUSED
    assert step.why.startswith("java is not a kcl-mld worker")
    assert planned(OURS, SteerVerb.PAUSE, JAVA, living=("me",)).way is SteerWay.ASK
    assert foreign_owners(watched(OURS, JAVA, FREE, living=("me", "java"))) == {"java"}


PARENT = lease(3, checkpoint=NINE)
CHILD = lease(4, parent_shard_ids=("shardId-000000000003",), checkpoint=TRIM_HORIZON)


@pytest.mark.parametrize(
    ("row", "others", "position", "way", "text"),
    [
        (FREE, (), NINE, SteerWay.NONE, "its checkpoint is there already"),
        (FREE, (), FIVE, SteerWay.WRITE, "come again"),
        (FREE, (), TRIM_HORIZON, SteerWay.WRITE, "come again"),
        (replace(FREE, checkpoint=FIVE), (), NINE, SteerWay.WRITE, "skipped"),
        (replace(FREE, checkpoint=LATEST), (), NINE, SteerWay.WRITE, None),
        (replace(FREE, checkpoint=TRIM_HORIZON), (), NINE, SteerWay.WRITE, "skipped"),
        (replace(FREE, checkpoint=LATEST), (), TRIM_HORIZON, SteerWay.WRITE, None),
        (replace(FREE, pending_checkpoint=NINE), (), NINE, SteerWay.WRITE, None),
        (replace(FREE, skipped=(PositionRange(NINE, NINE),)), (), NINE, SteerWay.WRITE, None),
        (replace(FREE, failure=FailureNote(held="full")), (), NINE, SteerWay.WRITE, None),
        (CHILD, (PARENT,), NINE, SteerWay.REFUSED, "begins when its parents are finished"),
        (CHILD, (replace(PARENT, checkpoint=SHARD_END),), NINE, SteerWay.WRITE, "skipped"),
        (
            replace(CHILD, checkpoint=NINE),
            (replace(PARENT, checkpoint=SHARD_END),),
            TRIM_HORIZON,
            SteerWay.WRITE,
            "its parents (shardId-000000000003) are not read again",
        ),
        (replace(CHILD, checkpoint=NINE), (PARENT,), TRIM_HORIZON, SteerWay.WRITE, "waits for its"),
        (replace(CHILD, checkpoint=NINE), (), TRIM_HORIZON, SteerWay.WRITE, "not read again"),
        (replace(FREE, checkpoint=None), (), NINE, SteerWay.WRITE, None),
    ],
)
def test_what_a_reset_means(row, others, position, way, text):
    step = planned(row, SteerVerb.RESET, *others, position=position)
    assert step.way is way
    assert step.position == position
    said = " ".join([step.why, *step.notes])
    assert said.strip() == "" if text is None else text in said


def shard(number):
    return Shard(f"shardId-{number:012d}", HashRange(number * 100, number * 100 + 99), "1")


OLD = StreamSnapshot(name="s", shards=(shard(1),))


@pytest.mark.parametrize(
    ("row", "stream", "way", "why"),
    [
        (FREE, OLD, SteerWay.WRITE, ""),
        (replace(FREE, checkpoint=SHARD_END), OLD, SteerWay.WRITE, ""),
        (lease(1), OLD, SteerWay.REFUSED, "still has its shard"),
        (lease(2), OLD, SteerWay.REFUSED, "or never had it"),
        (FREE, StreamSnapshot(name="s", is_listed=False), SteerWay.WRITE, ""),
        (FREE, StreamSnapshot(name="s", gone="deleted"), SteerWay.REFUSED, "deleted"),
        (FREE, StreamSnapshot(name="s", unknown="denied"), SteerWay.REFUSED, "denied"),
        (FREE, StreamSnapshot(name="s"), SteerWay.REFUSED, "not known"),
        (FREE, StreamSnapshot(name="s", identifier="1:s:1"), SteerWay.REFUSED, "not known"),
    ],
)
def test_only_what_nobody_needs_is_deleted(row, stream, way, why):
    watch = Snapshots((snapshot(0.0, row, streams=(stream,)),))
    step = plan_step(watch, row, SteerVerb.DELETE, 10.0)
    assert step.way is way
    assert why in step.why


def test_a_row_that_is_renewed_is_not_deleted():
    watch = watched(OURS, living=("me",))
    assert plan_step(watch, OURS, SteerVerb.DELETE, 10.0).why == "me renews it"
