"""Every verdict, from looks that were made to show it."""

import re
from dataclasses import replace

import pytest

from kcl_mld.config.stream import DYNAMODB_STREAMS
from kcl_mld.config.stream_list import STRATEGY_KEY
from kcl_mld.fleet.model.lock_item import LockItem
from kcl_mld.fleet.model.state_history import ClientVersion, TableStatus
from kcl_mld.fleet.model.worker_life import FailedLife, Instance
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, WorstLag
from kcl_mld.kernel.model.sequence import LATEST, SHARD_END, ExtendedSequenceNumber
from kcl_mld.leases.model.containment import FailureNote, PositionRange
from kcl_mld.leases.model.lease_request import LeaseRequest
from kcl_mld.leases.model.newcomer import NewcomerMark
from kcl_mld.observe.model.fleet_snapshot import FleetItems, StreamSnapshot, TipSnapshot
from kcl_mld.observe.model.verdict import Verdict, VerdictSeverity
from kcl_mld.observe.model.worker_page import WorkerPage
from kcl_mld.observe.rules.explain import Awaited, explain, missing
from kcl_mld.observe.rules.watching import ExplainRules
from kcl_mld.streams.model.shard import MAX_HASH_KEY, HashRange, Shard
from tests.fakes.fleet_looks import snapshot as look
from tests.fakes.lease_world import lease
from tests.markdown_pages import page

RULES = ExplainRules(failover_s=10.0)
HALF = 2**127
LEFT, RIGHT = HashRange(0, HALF - 1), HashRange(HALF, MAX_HASH_KEY)
WHOLE = HashRange(0, MAX_HASH_KEY)
KEY = "shardId-000000000000"
V3X = ClientVersion.CLIENT_VERSION_3X
OK, INFO, WARNING, CRITICAL = VerdictSeverity


def at(number):
    return ExtendedSequenceNumber(str(number))


def owned(number=0, counter=0, **fields):
    return lease(number, **{"lease_owner": "w1", "lease_counter": counter, **fields})


def shard(number, keys=WHOLE, ended=False, parents=(None, None)):
    end = "90" if ended else None
    return Shard(f"shardId-{number:012d}", keys, "1", end, *parents)


def stream(*shards, at_s=100.0, **fields):
    return StreamSnapshot(**{"name": "s", "asked_at": at_s, "shards": shards, **fields})


def said(*looks, rules=RULES):
    """(verdict, severity) of each shard."""
    return {one.subject: (one.verdict, one.severity) for one in explain(looks, rules).shards}


def first(*looks, rules=RULES):
    """The judgement of the first shard."""
    return next(one for one in explain(looks, rules).shards if one.subject == KEY)


def moving(**fields):
    """Looks at a lease whose counter moves."""
    return look(0, owned(counter=1), **fields), look(11, owned(counter=2), **fields)


# -- the state of a lease ---------------------------------------------------------------------------


@pytest.mark.parametrize(("until_s", "severity"), [(11, INFO), (61, WARNING)])
def test_unowned(until_s, severity):
    looks = look(0, lease(0)), look(until_s, lease(0))
    assert said(*looks) == {KEY: (Verdict.UNOWNED, severity)}
    assert first(*looks).since_s == pytest.approx(until_s - 0.1)


def test_unowned_because_each_worker_is_full():
    rows = lease(0), owned(1)
    found = first(look(0, *rows), look(11, *rows), rules=replace(RULES, max_leases=1))
    assert "maxLeasesForWorker = 1" in found.cause
    assert "start more workers" in found.todo


@pytest.mark.parametrize(
    ("until_s", "verdict", "severity"),
    [
        (5, Verdict.UNKNOWN, INFO),
        (11, Verdict.OWNER_SILENT, WARNING),
        (61, Verdict.OWNER_SILENT, CRITICAL),
    ],
)
def test_owner_silent(until_s, verdict, severity):
    assert said(look(0, owned()), look(until_s, owned())) == {KEY: (verdict, severity)}


def test_one_look_knows_little_and_says_so():
    told = explain([look(0, owned())], RULES)
    assert (told.shards[0].verdict, told.shards[0].severity) == (Verdict.UNKNOWN, INFO)
    assert "One look can't tell" in " ".join(told.facts)
    assert not told.needs_a_person
    assert explain([look(0)], RULES).severity is OK


def test_a_row_that_is_new_in_the_last_look_is_not_judged_yet():
    assert said(look(0), look(11, owned()))[KEY] == (Verdict.UNKNOWN, INFO)


def test_waiting_for_a_parent_is_as_grave_as_the_parent():
    child = owned(1, parent_shard_ids=(KEY, "shardId-gone"))
    moved = replace(child, lease_counter=1)
    waiting = said(look(0, owned(), child), look(11, owned(counter=1), moved))
    assert waiting["shardId-000000000001"] == (Verdict.WAITING_FOR_PARENT, INFO)
    silent = said(look(0, owned(), child), look(11, owned(), moved))
    assert silent["shardId-000000000001"] == (Verdict.WAITING_FOR_PARENT, WARNING)
    broken = look(0, child), look(11, moved, broken=((KEY, "no counter"),))
    assert said(*broken)["shardId-000000000001"] == (Verdict.WAITING_FOR_PARENT, CRITICAL)
    assert said(*broken)[KEY] == (Verdict.UNREADABLE_ROW, CRITICAL)
    ended = owned(checkpoint=SHARD_END)
    done = said(look(0, ended, child), look(11, ended, moved))
    assert done["shardId-000000000001"][0] is Verdict.NO_PROGRESS


def test_rows_that_name_each_other_as_parents_are_judged_all_the_same():
    one, other = "shardId-000000000000", "shardId-000000000001"
    rows = owned(0, parent_shard_ids=(other,)), owned(1, parent_shard_ids=(one,))
    later = [replace(row, lease_counter=1) for row in rows]
    found = said(look(0, *rows), look(11, *later))
    assert found[one][0] is Verdict.WAITING_FOR_PARENT
    assert found[other][0] is Verdict.NO_PROGRESS


# -- progress ----------------------------------------------------------------------------------------


def reading(until_s=11, tips=None, rows=((5, 1), (6, 2))):
    """Looks at a checkpoint that moves; tips are (asked_at, behind_s) by look."""
    looks = []
    for (number, counter), at_s, tip in zip(rows, (0, until_s), tips or (None, None), strict=True):
        known = {}
        if tip is not None:
            known = {KEY: TipSnapshot(asked_at=tip[0], position=at(number), behind_s=tip[1])}
        looks.append(look(at_s, owned(counter=counter, checkpoint=at(number)), tips=known))
    return looks


@pytest.mark.parametrize(
    ("tips", "verdict", "severity"),
    [
        (None, Verdict.READING, OK),
        (((0, None), (60, 5)), Verdict.READING, OK),
        (((0, None), (60, 50)), Verdict.READING, INFO),
        (((0, 50), (60, 5)), Verdict.READING, OK),
        (((0, 50), (60, 51)), Verdict.READING, OK),
        (((0, 50), (60, 100)), Verdict.FALLING_BEHIND, WARNING),
        (((0, 100), (60, 50)), Verdict.CATCHING_UP, INFO),
    ],
)
def test_a_checkpoint_that_moves(tips, verdict, severity):
    assert said(*reading(61, tips)) == {KEY: (verdict, severity)}


AT_MOST = "it is at most 31 s behind, as the worst shard of its owner was 11 s ago (other)"


def reporting(*reports, **fields):
    """The same looks; in each a report of the owner: (epoch second, worst lease, its lag)."""
    looks = []
    for one, report in zip(reading(61), reports, strict=True):
        worst = () if report is None else (WorstLag(report[1], report[2]),)
        metrics = [WorkerMetrics("w1", report[0], worst_lag=lag) for lag in worst]
        looks.append(replace(one, items=items(LOCK, *metrics), **fields))
    return looks


@pytest.mark.parametrize(
    ("reports", "verdict", "severity", "cause"),
    [
        ((None, None), Verdict.READING, OK, "counter and checkpoint move"),
        ((None, (1050, KEY, 10)), Verdict.READING, OK, "counter and checkpoint move"),
        ((None, (1050, "other", 10)), Verdict.READING, OK, "counter and checkpoint move"),
        # Its owner is dead, or does not report any more.
        ((None, (1000, KEY, 31)), Verdict.READING, OK, "counter and checkpoint move"),
        (
            (None, (1050, KEY, 31)),
            Verdict.READING,
            INFO,
            "counter and checkpoint move, and it is 31 s behind",
        ),
        (
            (None, (1050, "other", 31)),
            Verdict.READING,
            INFO,
            f"counter and checkpoint move; {AT_MOST}",
        ),
        (
            ((1000, KEY, 31), (1050, KEY, 71)),
            Verdict.FALLING_BEHIND,
            WARNING,
            "its lag rises: from 31 s to 71 s within 50 s",
        ),
        (
            ((1000, KEY, 71), (1050, KEY, 31)),
            Verdict.CATCHING_UP,
            INFO,
            "its lag falls: from 71 s to 31 s within 50 s",
        ),
    ],
)
def test_a_checkpoint_that_moves_by_the_reports_of_its_owner(reports, verdict, severity, cause):
    found = first(*reporting(*reports))
    assert (found.verdict, found.severity, found.cause) == (verdict, severity, cause)


def test_how_far_behind_is_not_known_of_owners_that_do_not_report_it():
    """Of fleets of 2.x, of Java and of older workers."""
    not_said = "The table has no lag of"
    others = [owned(n, lease_owner=f"w{n}") for n in range(2, 6)]

    def facts(look_, *rows):
        kept = {one.lease_key: one for one in rows} | dict(look_.leases)
        told = explain([replace(look_, leases=kept)], RULES).facts
        return [one for one in told if one.startswith(not_said)]

    silent, java = reporting(None, (1050, KEY, 31))
    ours = WorkerMetrics("w1", 900, instance=Instance("i", 1))
    reports = replace(java, items=items(LOCK, ours))
    assert facts(silent) == [f"{not_said} w1: --tip asks Kinesis for it"]
    assert facts(java) == facts(silent)
    assert facts(reports) == []
    assert facts(reports, *others) == [
        f"{not_said} w2, w3, w4 and 1 more: --tip asks Kinesis for it"
    ]
    page_of_w1 = WorkerPage(url="http://h:1/leases", asked_at=0.0, worker="w1")
    assert facts(replace(silent, pages=(page_of_w1,))) == []
    assert facts(reading(61, ((0, 5), (60, 5)))[1]) == []
    assert facts(look(0, lease(0), owned(1, checkpoint=SHARD_END))) == []
    assert facts(look(0, owned(), items=None)) == [f"{not_said} w1: --tip asks Kinesis for it"]


def test_a_checkpoint_that_moved_long_ago_stands_still():
    rows = [(0, 5, 1), (10, 6, 2), (50, 6, 3)]
    looks = [look(s, owned(counter=c, checkpoint=at(n))) for s, n, c in rows]
    assert said(*looks) == {KEY: (Verdict.NO_PROGRESS, INFO)}
    assert first(*looks).since_s == pytest.approx(39.9)


def still(behind_s, until_s=11, position=5, unknown=None, asked_s=0):
    """Looks at a checkpoint that stands still, the tip asked for."""
    tip = TipSnapshot(asked_at=asked_s, position=at(position), behind_s=behind_s, unknown=unknown)
    return [
        look(at_s, owned(counter=counter, checkpoint=at(5)), tips={KEY: tip})
        for at_s, counter in ((0, 1), (until_s - 1, 2), (until_s, 3))
    ]


@pytest.mark.parametrize(
    ("looks", "verdict", "severity"),
    [
        (moving(), Verdict.NO_PROGRESS, INFO),
        (still(0), Verdict.IDLE, OK),
        (still(9, position=4), Verdict.NO_PROGRESS, INFO),
        (still(400), Verdict.NO_PROGRESS, INFO),
        (still(9, until_s=400, asked_s=395), Verdict.NO_PROGRESS, INFO),
        (still(9, until_s=400), Verdict.STALLED, CRITICAL),
        (still(400, until_s=400), Verdict.STALLED, CRITICAL),
        (still(None, unknown="denied"), Verdict.UNKNOWN, WARNING),
    ],
)
def test_a_checkpoint_that_stands_still(looks, verdict, severity):
    assert said(*looks) == {KEY: (verdict, severity)}


def test_what_a_lease_at_latest_lacks_is_not_known():
    rows = [owned(counter=c, checkpoint=LATEST) for c in (1, 2)]
    found = first(look(0, rows[0]), look(11, rows[1]))
    assert (found.verdict, found.severity) == (Verdict.NO_PROGRESS, INFO)
    assert "can't be known" in found.cause


# -- what may be besides -----------------------------------------------------------------------------


@pytest.mark.parametrize(("until_s", "severity"), [(11, INFO), (42, WARNING)])
def test_handing_over(until_s, severity):
    rows = [owned(counter=c, checkpoint_owner="old") for c in (1, 2, 3)]
    looks = [look(s, row) for s, row in zip((0, until_s - 1, until_s), rows, strict=True)]
    assert said(*looks) == {KEY: (Verdict.HANDING_OVER, severity)}


def test_an_old_owner_that_is_silent_is_silent():
    row = owned(checkpoint_owner="old")
    assert said(look(0, row), look(50, row))[KEY][0] is Verdict.OWNER_SILENT


def test_thrashing():
    looks = [
        look(s, owned(counter=s, lease_owner=owner))
        for s, owner in ((0, "a"), (4, None), (5, "b"), (9, "b"), (11, "a"))
    ]
    assert said(*looks) == {KEY: (Verdict.THRASHING, WARNING)}
    assert said(looks[0], looks[2], replace(looks[4], leases=looks[3].leases))[KEY][1] is INFO


def test_held():
    why = FailureNote(PositionRange(at(7), at(7)), 11, 5, held="10 records became dead letters")
    looks = [look(s, owned(counter=s, checkpoint=at(6), failure=why)) for s in (0, 11)]
    assert said(*looks) == {KEY: (Verdict.HELD, WARNING)}
    assert first(*looks).cause == "w1 holds it and reads nothing: 10 records became dead letters"
    passed = [replace(one, leases=look(one.at, owned(counter=one.at, checkpoint=at(7), failure=why)).leases)
              for one in looks]  # fmt: skip
    assert said(*passed)[KEY][0] is not Verdict.HELD
    unowned = [look(s, owned(lease_owner=None, failure=why)) for s in (0, 11)]
    assert said(*unowned)[KEY][0] is Verdict.UNOWNED


@pytest.mark.parametrize(
    ("age_s", "shown", "severity"),
    [(-1, "0 s", WARNING), (5, "5 s", WARNING), (599, "10 min", WARNING), (600, "", OK)],
)
def test_a_dead_letter_is_a_warning_for_ten_minutes(age_s, shown, severity):
    note = FailureNote(letters_ms=(1, int(1000 * (1061 - age_s))))
    looks = [
        replace(one, leases={KEY: replace(one.leases[KEY], failure=note)}) for one in reading(61)
    ]
    found = first(*looks)
    assert (found.verdict, found.severity) == (Verdict.READING, severity)
    if severity is OK:
        assert found.cause == "counter and checkpoint move"
    else:
        assert found.cause.endswith(f"; its last dead letter is {shown} old")
        assert "dead-letters list" in found.todo


def test_a_dead_letter_is_named_beside_what_is_worse():
    note = FailureNote(letters_ms=(1_300_000,))
    looks = [
        replace(one, leases={KEY: replace(one.leases[KEY], failure=note)})
        for one in still(9, until_s=400)
    ]
    found = first(*looks)
    assert (found.verdict, found.severity) == (Verdict.STALLED, CRITICAL)
    assert found.cause.endswith("; its last dead letter is 100 s old")
    assert "dead-letters" not in found.todo


def test_rewound():
    looks = [look(s, owned(counter=s, checkpoint=at(n))) for s, n in ((0, 5), (11, 9), (20, 3))]
    assert said(*looks) == {KEY: (Verdict.REWOUND, WARNING)}
    assert "from 9 to 3" in first(*looks).cause


def test_a_reset_is_no_rewinding():
    done = LeaseRequest(request_id="r1", verb="reset", sequence_number="3")
    looks = [
        look(s, owned(counter=s, checkpoint=at(n), steered=who))
        for s, n, who in ((0, 5, None), (11, 9, None), (20, 3, done))
    ]
    assert said(*looks)[KEY][0] is Verdict.READING


def test_a_lease_that_is_paused_ends_its_pause():
    ours = {"holder": owned().lease_owner, "paused_until_s": 1030.0}
    looks = [look(s, owned(counter=s, **ours)) for s in (0, 11)]
    assert said(*looks) == {KEY: (Verdict.PAUSED, INFO)}
    assert "for another 19 s: it is paused" in first(*looks).cause
    note = LeaseRequest(request_id="r", verb="pause", by="ann@host", reason="upgrade")
    known = [look(s, owned(counter=s, steered=note, **ours)) for s in (0, 11)]
    assert first(*known).cause.endswith("for another 19 s: paused by ann@host (upgrade)")
    over = [look(s, owned(counter=s, **ours)) for s in (31, 42)]
    assert said(*over)[KEY][0] is Verdict.NO_PROGRESS
    java = [look(s, owned(counter=s, **ours | {"holder": "before"})) for s in (0, 11)]
    assert said(*java) == {KEY: (Verdict.PAUSE_IGNORED, WARNING)}
    owner = owned().lease_owner
    assert first(*java).cause == f"paused for another 19 s, but read by {owner}: it is paused"


@pytest.mark.parametrize(
    ("positions", "cause"),
    [
        ((9, 3, 8), "from 9 to 3"),
        ((9, 3, 9), None),
        ((9, 3, 10), None),
        ((9, 5, 3, 6), "from 9 to 5"),
        ((9, 8, 9, 7, 8), "from 9 to 7"),
    ],
)
def test_rewound_until_the_checkpoint_is_where_it_was(positions, cause):
    looks = [look(s * 11, owned(counter=s, checkpoint=at(n))) for s, n in enumerate(positions)]
    found = first(*looks)
    assert (found.verdict is Verdict.REWOUND) == (cause is not None)
    assert cause is None or cause in found.cause


@pytest.mark.parametrize(
    ("behind_s", "verdict"),
    [(79, Verdict.NO_PROGRESS), (80, Verdict.RETENTION_RISK), (100, Verdict.RECORDS_LOST)],
)
def test_lag_against_the_retention(behind_s, verdict):
    looks = [
        replace(one, streams=(stream(shard(0, HashRange(0, 99)), retention_s=100.0),))
        for one in still(behind_s)
    ]
    assert first(*looks).verdict is verdict


def test_a_shard_past_retention_that_was_not_finished():
    looks = moving(streams=(stream(shard(3)),))
    assert first(*looks).verdict is Verdict.RECORDS_LOST


@pytest.mark.parametrize(
    ("streams", "severity"),
    [
        (stream(gone="deleted"), CRITICAL),
        (stream(shard(0, LEFT)), CRITICAL),  # another hash range
        (StreamSnapshot(name="s", asked_at=99, shards=(shard(-1),)), CRITICAL),  # never had it
        (stream(is_listed=False), INFO),
    ],
)
def test_stream_gone(streams, severity):
    found = first(*moving(streams=(streams,)))
    assert (found.verdict, found.severity) == (Verdict.STREAM_GONE, severity)
    named = set(re.findall(r"\bformer\w+", found.todo))  # properties that exist
    assert named == ({STRATEGY_KEY} if severity is INFO else set())


def test_a_list_from_before_the_rows_convicts_no_row():
    old = stream(shard(0, LEFT), at_s=5.0)
    assert first(*moving(streams=(old,))).verdict is Verdict.NO_PROGRESS
    fresh = stream(shard(0, HashRange(0, 99)))
    assert first(*moving(streams=(fresh,))).verdict is Verdict.NO_PROGRESS


# -- finished shards, gaps ---------------------------------------------------------------------------

PARENT = shard(0, WHOLE, ended=True)
CHILDREN = shard(1, LEFT, parents=(KEY, None)), shard(2, RIGHT, parents=(KEY, None))
FAMILY = stream(PARENT, *CHILDREN, at_s=0.0)


def finished(**fields):
    return owned(checkpoint=SHARD_END, hash_range=WHOLE, **fields)


@pytest.mark.parametrize(
    ("times", "severity"), [((0,), INFO), ((0, 11), WARNING), ((0, 11, 31), CRITICAL)]
)
@pytest.mark.parametrize("named", [(), ("shardId-000000000001", "shardId-000000000002")])
def test_children_missing(times, severity, named):
    row = finished(child_shard_ids=named)
    looks = [look(s, row, streams=(FAMILY,)) for s in times]
    assert said(*looks) == {KEY: (Verdict.CHILDREN_MISSING, severity)}
    assert "shardId-000000000001, shardId-000000000002" in first(*looks).cause


def test_finished_with_children():
    rows = finished(), owned(1, hash_range=LEFT), owned(2, hash_range=RIGHT)
    found = said(look(0, *rows, streams=(FAMILY,)), look(11, *rows, streams=(FAMILY,)))
    assert found[KEY] == (Verdict.FINISHED, OK)


@pytest.mark.parametrize(
    ("times", "severity"), [((0,), INFO), ((0, 11), WARNING), ((0, 11, 31), CRITICAL)]
)
def test_hash_gap(times, severity):
    two = stream(shard(0, LEFT), shard(1, RIGHT), at_s=0.0)
    looks = [look(s, owned(counter=s, hash_range=None), streams=(two,)) for s in times]
    assert said(*looks)["shardId-000000000001"] == (Verdict.HASH_GAP, severity)


def test_a_parent_that_is_read_covers_its_children_and_neighbours_join():
    assert set(said(look(0, owned(hash_range=WHOLE), streams=(FAMILY,)))) == {KEY}
    rows = owned(1, hash_range=LEFT), owned(2, hash_range=RIGHT)
    # The parent was deleted after its end; a shard of all keys is covered by two neighbours.
    assert len(said(look(0, *rows, streams=(FAMILY,)))) == 2


def test_a_closed_shard_whose_children_have_rows_is_done():
    grandchild = owned(2, hash_range=LEFT, parent_shard_ids=(KEY,))
    shards = stream(shard(0, WHOLE, ended=True), shard(2, LEFT, parents=(KEY, None)), at_s=0.0)
    assert set(said(look(0, grandchild, streams=(shards,)))) == {grandchild.lease_key}


def test_streams_that_are_not_known_have_no_gaps():
    for one in (
        stream(gone="deleted"),
        stream(shard(0), is_listed=False),
        StreamSnapshot(name="s"),
    ):
        assert said(look(0, streams=(one,))) == {}


def test_keys_of_many_streams():
    identifier = "1:s:2"
    found = said(look(0, streams=(stream(shard(0), identifier=identifier, at_s=0.0),)))
    assert found == {f"{identifier}:{KEY}": (Verdict.HASH_GAP, INFO)}
    own = stream(shard(0), identifier=identifier, at_s=0.0)
    row = lease(0, lease_key=f"{identifier}:{KEY}", stream_identifier=identifier, hash_range=WHOLE)
    assert said(look(0, row, streams=(own,))) == {row.lease_key: (Verdict.UNOWNED, INFO)}


# -- the fleet ---------------------------------------------------------------------------------------


def fleet(*looks):
    told = explain(looks, RULES)
    return [(one.subject, one.verdict, one.severity) for one in told.fleet]


def test_streams_of_which_something_is_not_known_or_that_are_gone_are_told():
    one = stream(unknown="denied", shards=None)
    assert fleet(look(0, streams=(one,))) == [("s", Verdict.UNKNOWN, WARNING)]
    gone = stream(gone="deleted", shards=None)
    assert fleet(look(0, streams=(gone,))) == [("s", Verdict.STREAM_GONE, CRITICAL)]
    assert fleet(look(0, owned(), streams=(gone,))) == []


@pytest.mark.parametrize(("is_listed", "severity"), [(True, WARNING), (False, INFO)])
def test_a_stream_that_was_disabled_is_told(is_listed, severity):
    one = stream(shard(0), disabled="it was disabled", disabled_todo="read on", is_listed=is_listed)
    (found,) = explain([look(0, streams=(one,))], RULES).fleet
    assert (found.verdict, found.severity) == (Verdict.STREAM_DISABLED, severity)
    assert (found.cause, found.todo) == ("it was disabled", "read on" if is_listed else "")


def test_items_that_cannot_be_read_are_told():
    assert fleet(look(0, items=None, items_unknown="no")) == [("fleet", Verdict.UNKNOWN, WARNING)]


def test_a_fleet_of_2x_says_so():
    told = explain(moving(), RULES)
    assert told.fleet == ()
    assert told.facts[0] == "Fleet: works as 2.x"


def items(lock=None, *metrics, version=V3X, status=None):
    return FleetItems(version=version, lock=lock, metrics=metrics, table_status=status)


LOCK = LockItem("w1", 8.0, "1")


@pytest.mark.parametrize(
    ("lock", "later", "until_s", "expected"),
    [
        (LOCK, replace(LOCK, record_version="2"), 11, []),
        (LOCK, LOCK, 11, [WARNING]),
        (LOCK, LOCK, 5, []),
        (LOCK, LOCK, 70, [CRITICAL]),
        (None, None, 11, [WARNING]),
        (replace(LOCK, is_released=True), replace(LOCK, is_released=True), 11, [WARNING]),
    ],
)
def test_a_leader_that_stands_still(lock, later, until_s, expected):
    found = fleet(look(0, items=items(lock)), look(until_s, items=items(later)))
    assert found == [("fleet", Verdict.LEADER_SILENT, severity) for severity in expected]
    assert fleet(look(0, items=items(lock))) == []


def test_a_leader_who_lives_is_not_known_to_after_short_looks():
    java = replace(LOCK, duration_s=120.0)
    told = explain([look(0, items=items(java)), look(11, items=items(java))], RULES)
    assert told.fleet == ()
    assert "Whether the leader lives takes longer looks: --for 120" in told.facts
    assert "Gaps and trends take longer looks: --for 30" in told.facts
    long = explain([look(0, items=items(LOCK)), look(31, items=items(LOCK))], RULES)
    assert not any("longer looks" in fact for fact in long.facts)


def failed(number, lease_key=None, lived_s=5):
    return FailedLife(
        instance=f"i{number}",
        worker_id=f"x{number}",
        lived_s=lived_s,
        failed_at_s=990 + number,
        why="its child failed at initialize (exit status 1)",
        lease_key=lease_key,
        position=None if lease_key is None else "77",
    )


def test_a_crash_loop_is_named_with_its_last_lives():
    lives = [failed(number) for number in range(5)]
    (told,) = explain([look(0, failed=tuple(lives))], RULES).fleet
    assert (told.subject, told.verdict, told.severity) == ("fleet", Verdict.CRASH_LOOP, WARNING)
    assert told.cause == (
        "5 processes failed soon after their start, the last of them "
        "x4 6 s ago after 5 s: its child failed at initialize (exit status 1), before it "
        "x3 7 s ago after 5 s: its child failed at initialize (exit status 1), before it "
        "x2 8 s ago after 5 s: its child failed at initialize (exit status 1); "
        "newcomers wait for their leases"
    )


def test_one_lease_at_which_all_fail_is_named_instead():
    lives = (failed(1, lease(0).lease_key, 3600), failed(2, lease(0).lease_key))
    (told,) = explain([look(0, failed=lives)], RULES).fleet
    assert (told.subject, told.verdict) == (lease(0).lease_key, Verdict.CRASH_LOOP)
    assert "2 processes failed at this lease, at position 77, the last of them x2" in told.cause


@pytest.mark.parametrize("lives", [(), (failed(1),), (failed(1), failed(2, lived_s=361))])
def test_a_single_failure_is_no_crash_loop(lives):
    assert fleet(look(0, failed=lives)) == []


def test_a_crash_loop_of_a_2x_fleet_is_named_by_the_marks_in_its_rows():
    rows = [
        lease(number, newcomer=NewcomerMark(f"i{number}", f"x{number}", 980 + number))
        for number in range(4)
    ]
    (told,) = explain([look(0, *rows)], RULES).fleet
    assert (told.subject, told.verdict, told.severity) == ("fleet", Verdict.CRASH_LOOP, WARNING)
    assert told.cause == (
        "4 processes failed soon after they took leases, the last of them "
        f"x3, which took {rows[3].lease_key} 17 s ago, before it "
        f"x2, which took {rows[2].lease_key} 18 s ago, before it "
        f"x1, which took {rows[1].lease_key} 19 s ago; newcomers take one lease first"
    )
    assert fleet(look(0, rows[0])) == []


@pytest.mark.parametrize(
    ("before", "after", "is_told"),
    [
        ((), (), True),
        ((WorkerMetrics("w1", 900),), (WorkerMetrics("w1", 900),), True),
        ((WorkerMetrics("w1", 900),), (WorkerMetrics("w1", 950),), False),
        ((), (WorkerMetrics("w1", 900), WorkerMetrics("w1", 1005)), False),
        (None, (WorkerMetrics("w1", 900),), False),
    ],
)
def test_owners_without_metrics(before, after, is_told):
    earlier = None if before is None else items(LOCK, *before)
    later = items(replace(LOCK, record_version="2"), *after)
    looks = [
        look(0, owned(counter=1), lease(1), items=earlier),
        look(11, owned(counter=2), lease(1), items=later),
    ]
    expected = [("w1", Verdict.NO_METRICS, WARNING)] if is_told else []
    assert fleet(*looks) == expected
    assert fleet(looks[1]) == []
    led = items(replace(LOCK, record_version="3"), *after)
    dead = look(22, owned(counter=2), lease(1), items=led)
    assert fleet(*looks, dead) == []


@pytest.mark.parametrize(
    ("metrics", "cause"),
    [
        (WorkerMetrics("w2", 1000), None),
        (WorkerMetrics("w2", 1060), None),
        # A Java worker, or one of ours that does not say it.
        (WorkerMetrics("w2", 1300), "300 s ahead of AWS"),
        (WorkerMetrics("w2", 1300, clock_ahead_s=299), "299 s ahead of AWS"),
        (WorkerMetrics("w2", 1000, clock_ahead_s=-300), "300 s behind AWS"),
        (WorkerMetrics("w2", 1000, clock_ahead_s=2), None),
        # It is dead, and what it said is long ago.
        (WorkerMetrics("w2", 900, clock_ahead_s=-300), None),
    ],
)
def test_a_wrong_clock_is_seen_in_the_metrics_of_a_worker(metrics, cause):
    told = explain([look(0, items=items(LOCK, metrics))], RULES).fleet
    assert [(one.subject, one.verdict, one.severity) for one in told] == (
        [] if cause is None else [("w2", Verdict.WRONG_CLOCK, WARNING)]
    )
    assert all(one.cause == f"the clock of its machine is {cause}" for one in told)


def test_a_wrong_clock_is_seen_on_the_page_of_a_worker():
    def on_page(ahead_s):
        return WorkerPage(url="http://h:1/leases", asked_at=0.0, worker="w1", clock_ahead_s=ahead_s)

    assert fleet(look(0, pages=(on_page(-61.0),))) == [("w1", Verdict.WRONG_CLOCK, WARNING)]
    assert fleet(look(0, pages=(on_page(-60.0),))) == fleet(look(0, pages=(on_page(None),))) == []


def test_a_doubled_worker_id_is_told_apart_from_other_reasons():
    reasons = (("doubled_id", "Another living process has it."), ("table_silent", "No answer."))
    page = WorkerPage(url="http://h:1/leases", asked_at=0.0, worker="w1", reasons=reasons)
    assert fleet(look(0, pages=(page,))) == [
        ("w1", Verdict.DOUBLED_ID, WARNING),
        ("w1", Verdict.NOT_READY, WARNING),
    ]


def test_migrations_are_told():
    upgrade = items(version=ClientVersion.CLIENT_VERSION_UPGRADE_FROM_2X)
    assert fleet(look(0, items=upgrade)) == [("fleet", Verdict.MIGRATING, INFO)]
    moved = TableStatus.TABLE_MIGRATION_STATUS_PENDING
    looks = look(0, items=items(status=moved)), look(1, items=items(status=moved))
    assert fleet(*looks) == [("fleet", Verdict.MIGRATING, INFO)]
    done = TableStatus.TABLE_MIGRATION_STATUS_COMPLETE
    assert fleet(look(0, items=items(status=done))) == []


def test_rows_on_their_way_to_other_keys_are_told():
    assert fleet(look(0, moving=("1:s:2:shardId-0",))) == [("fleet", Verdict.MIGRATING, WARNING)]


def test_the_worst_comes_first_and_is_that_of_the_fleet():
    rows = owned(0, counter=1), lease(1), owned(2)
    later = owned(0, counter=2, checkpoint=at(7)), lease(1), owned(2)
    told = explain([look(0, *rows), look(11, *later)], RULES)
    assert [one.verdict for one in told.shards] == [
        Verdict.OWNER_SILENT,
        Verdict.UNOWNED,
        Verdict.READING,
    ]
    assert told.severity is WARNING
    assert told.severity.word == "warning"
    assert told.needs_a_person


def test_every_verdict_has_a_part_of_the_page():
    assert {one.lower() for one in Verdict} <= page("docs/verdicts.md").anchors
    assert first(look(0, lease(0))).link == "docs/verdicts.md#unowned"


# -- waiting -----------------------------------------------------------------------------------------


def lacks(awaited, *looks):
    told = missing(explain(looks, RULES), awaited, within_s=60)
    return None if told is None else [one.subject for one in told.shards]


def test_what_is_missing_until_all_is_owned():
    owns = Awaited.ALL_OWNED
    assert lacks(owns, look(0)) == []
    assert lacks(owns, look(0, owned())) == [KEY]
    assert lacks(owns, *moving()) is None
    assert lacks(owns, look(0, lease(0)), look(11, lease(0))) == [KEY]
    assert lacks(owns, look(0, finished())) is None
    assert lacks(owns, look(0, finished(), streams=(FAMILY,))) == [KEY]
    assert lacks(owns, *moving(streams=(stream(gone="deleted"),))) == [KEY]
    assert lacks(owns, look(0, lease(0), streams=(stream(is_listed=False),))) is None
    assert lacks(owns, look(0, broken=((KEY, "no counter"),))) == [KEY]


def test_what_is_missing_until_all_is_caught_up():
    caught_up = Awaited.CAUGHT_UP
    assert lacks(caught_up, *moving()) == [KEY]
    assert lacks(caught_up, *still(61)) == [KEY]
    assert lacks(caught_up, *still(59)) is None
    rows = [owned(counter=c, checkpoint=LATEST) for c in (1, 2)]
    assert lacks(caught_up, look(0, rows[0]), look(11, rows[1])) is None


TABLES = replace(RULES, traits=DYNAMODB_STREAMS)


def test_of_shards_with_few_readers_the_owners_are_asked():
    """``--tip`` would be one more reader."""
    looks = [*moving(), look(61, owned(counter=9, checkpoint=SHARD_END))]
    for rules, option in ((RULES, "--tip"), (TABLES, "--scrape")):
        (found,) = explain(looks[:-1], rules).shards
        assert (
            found.cause
            == f"counter moves, checkpoint does not; {option} tells whether records wait"
        )
        assert found.todo == f"ask with {option}"
    silent, _java = reporting(None, (1050, KEY, 31))
    assert (
        "The table has no lag of w1: --scrape asks the workers for it"
        in explain([silent], TABLES).facts
    )


@pytest.mark.parametrize(("rules", "raises"), [(RULES, True), (TABLES, False)])
def test_a_retention_that_is_fixed_is_not_to_be_raised(rules, raises):
    found = explain([look(0, owned(0), streams=(stream(shard(7)),))], rules).shards
    lost = [one for one in found if one.verdict is Verdict.RECORDS_LOST]
    assert [("raise the retention" in one.todo) for one in lost] == [raises]
