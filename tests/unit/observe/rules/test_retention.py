"""Verdicts about records that are lost, may be, or soon are."""

from dataclasses import replace

import pytest

from kcl_mld.kernel.model.sequence import SHARD_END
from kcl_mld.leases.model.reading import LossNote, ReadNote
from kcl_mld.observe.model.fleet_snapshot import TipSnapshot
from kcl_mld.observe.model.verdict import Verdict
from kcl_mld.observe.model.worker_page import ShardOnPage, WorkerPage
from kcl_mld.observe.rules.explain import explain
from kcl_mld.signals.model.metrics import PassCause
from kcl_mld.streams.model.shard import HashRange
from tests.fakes.fleet_looks import snapshot as look
from tests.unit.observe.rules.test_explain import (
    CRITICAL,
    INFO,
    KEY,
    OK,
    RULES,
    WARNING,
    at,
    first,
    moving,
    owned,
    shard,
    stream,
)

NOW_S = 1011.0
LOST = LossNote(is_certain=True, cause=PassCause.EXPIRED, at_s=NOW_S - 60, first="5", last="9")
MAYBE = replace(LOST, is_certain=False, cause=PassCause.TRIMMED)


def looks(retention_s=100.0, tips=None, pages=(), *, ended=False, **fields):
    """Looks at a living owner, at 1000 and 1011 s."""
    return [
        look(
            at_s,
            owned(counter=number, **fields),
            streams=(stream(shard(0, HashRange(0, 99), ended=ended), retention_s=retention_s),),
            tips=tips or {},
            pages=pages,
        )
        for number, at_s in enumerate((0, 11))
    ]


@pytest.mark.parametrize(
    ("loss", "verdict", "severity"),
    [
        (LOST, Verdict.RECORDS_LOST, CRITICAL),
        (MAYBE, Verdict.RECORDS_MAY_BE_LOST, WARNING),
        (replace(MAYBE, count=3), Verdict.RECORDS_MAY_BE_LOST, WARNING),
        (replace(LOST, at_s=NOW_S - 90_000), Verdict.NO_PROGRESS, INFO),
    ],
)
def test_a_loss_is_shown_for_a_day(loss, verdict, severity):
    found = first(*looks(loss=loss))
    assert (found.verdict, found.severity) == (verdict, severity)
    assert ("(found 3 times within a day)" in found.cause) is (loss.count == 3)


def test_a_loss_of_a_finished_shard_is_shown():
    row = replace(MAYBE, cause=PassCause.VANISHED, last=None)
    found = first(*looks(loss=row, checkpoint=SHARD_END, ended=True))
    assert found.verdict is Verdict.RECORDS_MAY_BE_LOST
    assert first(*looks(checkpoint=SHARD_END, ended=True)).severity is OK


@pytest.mark.parametrize(
    ("age_s", "verdict", "severity"),
    [
        (79, Verdict.NO_PROGRESS, INFO),
        (80, Verdict.RETENTION_RISK, WARNING),
        (1000, Verdict.RETENTION_RISK, WARNING),
    ],
)
def test_the_age_of_a_checkpoint(age_s, verdict, severity):
    note = ReadNote(NOW_S - age_s, at(5))
    found = first(*looks(read=note, checkpoint=at(7)))
    assert (found.verdict, found.severity) == (verdict, severity)
    assert first(*looks(read=note, checkpoint=at(4))).verdict is Verdict.NO_PROGRESS
    assert first(*looks(None, read=note, checkpoint=at(7))).verdict is Verdict.NO_PROGRESS


def test_a_shard_of_a_table_has_no_records_from_before_its_creation():
    young = f"shardId-{int(1000 * (NOW_S - 79)):020d}-0000000a"
    listed = replace(shard(0, HashRange(0, 99)), shard_id=young)
    note = ReadNote(NOW_S - 1000, at(5))
    rows = [
        look(
            at_s,
            replace(
                owned(counter=count, read=note, checkpoint=at(7)), lease_key=young, shard_id=young
            ),
            streams=(stream(listed, retention_s=100.0),),
        )
        for count, at_s in enumerate((0, 11))
    ]
    (found,) = explain(rows, RULES).shards
    assert found.verdict is Verdict.NO_PROGRESS


def test_the_tip_knows_better_than_the_age():
    note = ReadNote(NOW_S - 1000, at(5))
    tip = TipSnapshot(asked_at=0, position=at(5), behind_s=0.0)
    assert first(*looks(tips={KEY: tip}, read=note, checkpoint=at(5))).verdict is Verdict.IDLE
    unknown = replace(tip, behind_s=None, unknown="denied")
    found = first(*looks(tips={KEY: unknown}, read=note, checkpoint=at(5)))
    assert found.verdict is Verdict.RETENTION_RISK


@pytest.mark.parametrize(("lag_s", "is_risk"), [(79, False), (80, True)])
def test_the_position_of_reading(lag_s, is_risk):
    one = ShardOnPage(KEY, "PROCESSING", reading_lag_s=lag_s)
    page = WorkerPage(url="http://h", asked_at=0.0, worker="w1", shards={KEY: one})
    found = first(*looks(pages=(page,), checkpoint=at(5)))
    assert (found.verdict is Verdict.RETENTION_RISK) is is_risk
    assert found.severity is (CRITICAL if is_risk else INFO)


def test_streams_that_are_not_known_have_no_retention():
    note = ReadNote(0.0, at(5))
    rows = moving()
    assert first(*rows).verdict is Verdict.NO_PROGRESS
    alone = [look(0, owned(counter=1, read=note)), look(11, owned(counter=2, read=note))]
    assert first(*alone).verdict is Verdict.NO_PROGRESS


@pytest.mark.parametrize(
    ("waited_s", "retention_s", "verdict", "severity"),
    [
        (None, 1000.0, Verdict.NO_PROGRESS, INFO),
        (59.0, 1000.0, Verdict.NO_PROGRESS, INFO),
        (60.0, 1000.0, Verdict.UNCONFIRMED, WARNING),
        (800.0, 1000.0, Verdict.UNCONFIRMED, CRITICAL),
        (800.0, None, Verdict.UNCONFIRMED, WARNING),
    ],
)
def test_a_checkpoint_that_waits_for_one_of_several_children(
    waited_s, retention_s, verdict, severity
):
    shard_page = ShardOnPage(KEY, "PROCESSING", unconfirmed_s=waited_s)
    worker = WorkerPage(url="http://h/leases", asked_at=11, worker="w1", shards={KEY: shard_page})
    found = first(*looks(retention_s=retention_s, pages=(worker,)))
    assert (found.verdict, found.severity) == (verdict, severity)


def test_a_checkpoint_that_waits_in_a_stream_that_is_not_known():
    worker = WorkerPage(
        url="http://h/leases",
        asked_at=11,
        worker="w1",
        shards={KEY: ShardOnPage(KEY, "PROCESSING", unconfirmed_s=70.0)},
    )
    found = first(*(look(at_s, owned(counter=at_s), pages=(worker,)) for at_s in (0, 11)))
    assert (found.verdict, found.severity) == (Verdict.UNCONFIRMED, WARNING)
