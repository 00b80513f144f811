"""When to subscribe again, where, and how much may come."""

from __future__ import annotations

import random

import pytest

from kcl_mld.config.config import RetrievalConfig
from kcl_mld.config.stream import KINESIS
from kcl_mld.errors import (
    InUse,
    LimitExceeded,
    MalformedData,
    ServiceError,
    Throttled,
    UnknownOutcome,
)
from kcl_mld.kernel.model.sequence import (
    AT_TIMESTAMP,
    LATEST,
    TRIM_HORIZON,
    ExtendedSequenceNumber as At,
)
from kcl_mld.retrieval.rules.fan_out import (
    LARGEST_EVENT_BYTES,
    MOST_EVENTS,
    ConsumerStep,
    consumer_step,
    expected_event_bytes,
    renewal_pause_s,
    starting_position,
)
from kcl_mld.retrieval.rules.polling import (
    SMALLEST_ANSWER_BYTES,
    ReadPosition,
    iterator_start,
    may_prefetch,
)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (ReadPosition(TRIM_HORIZON), {"Type": "TRIM_HORIZON"}),
        (ReadPosition(LATEST), {"Type": "LATEST"}),
        (ReadPosition(LATEST, latest_since_s=50.0), {"Type": "AT_TIMESTAMP", "Timestamp": 40.0}),
        (ReadPosition(AT_TIMESTAMP), {"Type": "AT_TIMESTAMP", "Timestamp": 7.5}),
        (ReadPosition(At("12", 3)), {"Type": "AT_SEQUENCE_NUMBER", "SequenceNumber": "12"}),
        (
            ReadPosition(At("12", 3), last_received="15"),
            {"Type": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": "15"},
        ),
    ],
)
def test_where_a_subscription_begins(position, expected):
    assert starting_position(iterator_start(position, 7.5, KINESIS)) == expected


def pause(error, failures=1, since=None, seed=1):
    return renewal_pause_s(error, failures, since, random.Random(seed))


def test_after_a_normal_end_it_goes_on_at_once():
    assert pause(None, 0, 300.0) == 0.0


def test_not_before_the_service_would_accept_it():
    assert pause(None, 0, 1.5) == 3.5
    assert pause(UnknownOutcome("SubscribeToShard", "ProtocolError"), since=0.5) == 4.5


@pytest.mark.parametrize("seed", range(20))
def test_who_was_refused_for_another_waits_until_that_is_too_old(seed):
    assert 5.0 <= pause(InUse("S", "ResourceInUseException"), 7, seed=seed) < 6.0


def test_a_broken_connection_is_made_again_after_a_second():
    assert pause(UnknownOutcome("S", "ProtocolError"), 50, 100.0) == 1.0
    assert pause(ServiceError("S", "InternalFailureException"), 50) == 1.0


@pytest.mark.parametrize(
    "error", [Throttled("S", "T"), LimitExceeded("S", "L"), MalformedData("broken")]
)
def test_what_load_or_data_caused_is_tried_less_and_less(error):
    assert 1.0 <= pause(error, 1) <= 2.0
    assert 8.0 <= pause(error, 4) <= 16.0
    assert 15.0 <= pause(error, 40) <= 30.0
    assert pause(error, 3, seed=1) != pause(error, 3, seed=2)


def test_how_many_events_may_wait():
    config = RetrievalConfig()
    assert may_prefetch(config, 0, 10**9, 10**9, is_wanted=False, most=MOST_EVENTS)
    assert may_prefetch(config, MOST_EVENTS - 1, 0, 0, is_wanted=False, most=MOST_EVENTS)
    assert not may_prefetch(config, MOST_EVENTS, 0, 0, is_wanted=True, most=MOST_EVENTS)
    assert not may_prefetch(
        config, 1, config.max_pending_bytes, 0, is_wanted=True, most=MOST_EVENTS
    )
    assert not may_prefetch(
        config, 1, 0, config.max_pending_records, is_wanted=True, most=MOST_EVENTS
    )


def test_without_read_ahead_one_comes_when_it_is_wanted():
    config = RetrievalConfig(max_pending=0)
    assert may_prefetch(config, 0, 0, 0, is_wanted=True, most=MOST_EVENTS)
    assert not may_prefetch(config, 0, 0, 0, is_wanted=False, most=MOST_EVENTS)
    assert not may_prefetch(config, 1, 0, 0, is_wanted=True, most=MOST_EVENTS)


def test_what_an_event_is_expected_to_take():
    assert expected_event_bytes(None, None) == LARGEST_EVENT_BYTES
    assert expected_event_bytes(10, None) == LARGEST_EVENT_BYTES
    assert expected_event_bytes(10, 60_000) == LARGEST_EVENT_BYTES
    assert expected_event_bytes(10, 0) == SMALLEST_ANSWER_BYTES
    assert expected_event_bytes(100_000, 0) == 200_000
    assert expected_event_bytes(10**8, 0) == LARGEST_EVENT_BYTES


def test_steps_of_registration():
    assert consumer_step(None) is ConsumerStep.REGISTER
    assert consumer_step("ACTIVE") is ConsumerStep.USE
    assert consumer_step("CREATING") is ConsumerStep.WAIT
    assert consumer_step("DELETING") is ConsumerStep.WAIT
