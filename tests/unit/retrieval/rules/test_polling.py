"""Where iterators begin, when to ask, and how much to keep ready."""

from __future__ import annotations

import pytest

from kcl_mld.config.config import RetrievalConfig
from kcl_mld.config.stream import DYNAMODB_STREAMS, KINESIS
from kcl_mld.kernel.model.sequence import (
    AT_TIMESTAMP,
    LATEST,
    TRIM_HORIZON,
    ExtendedSequenceNumber as At,
)
from kcl_mld.retrieval.rules.polling import (
    LARGEST_ANSWER_BYTES,
    LATEST_MARGIN_S,
    SMALLEST_ANSWER_BYTES,
    IteratorStart,
    IteratorType as T,
    ReadPosition,
    after_expiry,
    expected_bytes,
    is_catching_up,
    iterator_start,
    may_prefetch,
    pause_s,
    range_start,
    refused_pause_s,
)


@pytest.mark.parametrize(
    ("position", "start"),
    [
        (ReadPosition(TRIM_HORIZON), IteratorStart(T.TRIM_HORIZON)),
        (ReadPosition(LATEST), IteratorStart(T.LATEST)),
        (ReadPosition(AT_TIMESTAMP), IteratorStart(T.AT_TIMESTAMP, timestamp_s=5.5)),
        (ReadPosition(At("12", 3)), IteratorStart(T.AT_SEQUENCE_NUMBER, "12")),
        (ReadPosition(At("0012")), IteratorStart(T.AT_SEQUENCE_NUMBER, "12")),
        (ReadPosition(At("00")), IteratorStart(T.AT_SEQUENCE_NUMBER, "0")),
        (ReadPosition(At("12"), "15"), IteratorStart(T.AFTER_SEQUENCE_NUMBER, "15")),
        (ReadPosition(LATEST, "15", 1.0), IteratorStart(T.AFTER_SEQUENCE_NUMBER, "15")),
    ],
)
def test_first_and_later_iterators(position, start):
    assert iterator_start(position, 5.5, KINESIS) == start


def test_an_expired_latest_iterator_before_the_first_record_leaves_no_hole():
    start = iterator_start(ReadPosition(LATEST, latest_since_s=1000.0), None, KINESIS)
    assert start == IteratorStart(T.AT_TIMESTAMP, timestamp_s=1000.0 - LATEST_MARGIN_S)


def test_an_expired_iterator_before_the_first_record_reads_the_aggregate_again():
    assert iterator_start(ReadPosition(At("12", 3)), None, KINESIS).type is T.AT_SEQUENCE_NUMBER


def test_a_timestamp_start_that_is_no_longer_configured_reads_everything():
    assert iterator_start(ReadPosition(AT_TIMESTAMP), None, KINESIS) == IteratorStart(
        T.TRIM_HORIZON
    )


def test_requests_carry_only_what_their_type_needs():
    assert IteratorStart(T.LATEST).request() == {"ShardIteratorType": "LATEST"}
    assert IteratorStart(T.AT_SEQUENCE_NUMBER, "1").request() == {
        "ShardIteratorType": "AT_SEQUENCE_NUMBER",
        "StartingSequenceNumber": "1",
    }
    assert IteratorStart(T.AT_TIMESTAMP, timestamp_s=2.0).request() == {
        "ShardIteratorType": "AT_TIMESTAMP",
        "Timestamp": 2.0,
    }


@pytest.mark.parametrize(
    ("threshold_s", "since_s", "behind_s", "expected_s"),
    [
        (0, None, None, 1.5),
        (0, 0.0, 0.0, 1.5),
        (0, 1.0, 0.0, 0.5),
        (0, 9.0, 0.0, 0.0),
        (0, -1.0, 0.0, 0.5),
        (5, 1.0, 0.0, 4.0),
        (5, 1.0, 4.999, 4.0),
        (5, 1.0, 5.0, 0.5),
        (5, 1.0, None, 0.5),
        (1, 1.4, 0.0, 0.1),
        (5, None, 0.0, 1.5),
        (5, 7.0, 0.0, 0.0),
    ],
)
def test_the_pause_before_the_next_call(threshold_s, since_s, behind_s, expected_s):
    config = RetrievalConfig(idle_s=1.5, reduced_tps_threshold_s=threshold_s)
    assert pause_s(config, since_s, behind_s) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    ("idle_s", "pauses_s"),
    [(1.5, [1.5, 1.5, 3.0, 5.0, 5.0]), (0.2, [0.2, 0.2, 0.4, 0.8, 1.6]), (8.0, [8.0] * 5)],
)
def test_the_pause_grows_while_a_shard_is_empty(idle_s, pauses_s):
    config = RetrievalConfig(idle_s=idle_s, idle_backoff=True)
    assert [pause_s(config, 0.0, 0.0, reads) for reads in range(5)] == pytest.approx(pauses_s)
    assert pause_s(config, 0.0, 0.0, 10**9) == max(5.0, idle_s)
    assert pause_s(RetrievalConfig(idle_s=idle_s), 0.0, 0.0, 4) == idle_s


GATES = RetrievalConfig(max_pending=4, max_pending_bytes=100, max_pending_records=10)


@pytest.mark.parametrize(
    ("batches", "size", "records", "allowed"),
    [
        (0, 10_000, 10_000, True),
        (1, 99, 9, True),
        (1, 100, 0, False),
        (1, 0, 10, False),
        (3, 0, 0, True),
        (4, 0, 0, False),
    ],
)
def test_all_three_gates_must_be_open(batches, size, records, allowed):
    assert may_prefetch(GATES, batches, size, records, is_wanted=False) is allowed


@pytest.mark.parametrize(
    ("batches", "wanted", "allowed"), [(0, True, True), (0, False, False), (1, True, False)]
)
def test_without_prefetch_only_demand_fetches(batches, wanted, allowed):
    config = RetrievalConfig(max_pending=0)
    assert may_prefetch(config, batches, 0, 0, is_wanted=wanted) is allowed


@pytest.mark.parametrize(
    ("last_bytes", "behind_s", "of_others", "expected"),
    [
        (1_000, 0.0, LARGEST_ANSWER_BYTES, SMALLEST_ANSWER_BYTES),
        (1_000_000, 0.0, LARGEST_ANSWER_BYTES, 2_000_000),
        (1_000_000, 9.9, LARGEST_ANSWER_BYTES, 2_000_000),
        (1_000, 10.1, 5_000_000, 5_000_000),
        (1_000, None, 5_000_000, 5_000_000),
        (3_000_000, 60.0, 5_000_000, 6_000_000),
        (10_000_000, 0.0, SMALLEST_ANSWER_BYTES, LARGEST_ANSWER_BYTES),
    ],
)
def test_the_next_answer_is_expected_like_the_last_and_far_behind_like_those_of_others(
    last_bytes, behind_s, of_others, expected
):
    assert expected_bytes(last_bytes, behind_s, of_others) == expected


def test_records_are_read_again_from_the_first_of_them_on():
    assert range_start(At("0012"), DYNAMODB_STREAMS) == IteratorStart(T.AT_SEQUENCE_NUMBER, "0012")
    assert range_start(At("0012"), KINESIS) == IteratorStart(T.AT_SEQUENCE_NUMBER, "12")
    assert range_start(TRIM_HORIZON, DYNAMODB_STREAMS).type is T.TRIM_HORIZON


def test_without_aggregates_a_checkpoint_is_read_after_it_and_keeps_its_digits():
    start = iterator_start(ReadPosition(At("0012")), None, DYNAMODB_STREAMS)
    assert start == IteratorStart(T.AFTER_SEQUENCE_NUMBER, "0012")
    assert iterator_start(ReadPosition(LATEST), None, DYNAMODB_STREAMS).type is T.LATEST


def test_where_records_expired_reading_goes_on_at_the_oldest():
    position = ReadPosition(At("12"), "15", 1.0)
    assert after_expiry(position) == ReadPosition(TRIM_HORIZON, None, 1.0)
    assert after_expiry(ReadPosition(TRIM_HORIZON, "15")) == ReadPosition(TRIM_HORIZON)
    assert after_expiry(ReadPosition(TRIM_HORIZON)) is None


@pytest.mark.parametrize(
    ("behind_s", "is_on", "pause"),
    [(None, True, 3.0), (60.0, True, 3.0), (60.001, True, 1.0), (60.001, False, 3.0)],
)
def test_far_behind_the_idle_time_is_divided_if_that_is_wanted(behind_s, is_on, pause):
    config = RetrievalConfig(idle_s=3.0, catch_up=is_on, catch_up_behind_s=60.0, catch_up_factor=3)
    assert pause_s(config, 0.0, behind_s) == pytest.approx(pause)
    assert is_catching_up(config, behind_s) is (pause == 1.0)
    # What the call took counts, and an answer without records is no reason to hurry.
    assert pause_s(config, 0.5, behind_s) == pytest.approx(pause - 0.5)
    assert pause_s(config, 0.0, None, 1, 2) == 6.0


@pytest.mark.parametrize(
    ("idle_s", "pauses_s"), [(1.0, [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]), (20.0, [20.0] * 6)]
)
def test_oldest_records_that_are_refused_are_asked_for_less_and_less_often(idle_s, pauses_s):
    config = RetrievalConfig(idle_s=idle_s)
    assert [refused_pause_s(config, count) for count in range(1, 7)] == pauses_s
    assert refused_pause_s(config, 10**9) == pauses_s[-1]


def test_an_answer_without_records_may_lengthen_the_pause():
    config = RetrievalConfig(idle_s=1.0)
    assert pause_s(config, 0.0, None, 1, 2) == 2.0
    assert pause_s(config, 0.0, None, 3, 2) == 2.0
    assert pause_s(config, 0.0, None, 0, 2) == 1.0
