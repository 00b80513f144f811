"""Why a consumer ends: one owner of the reason."""

import pytest

from kcl_mld.children.consuming.consumer_context import ConsumerShutdown
from kcl_mld.children.rules.lifecycle import ShutdownReason


@pytest.fixture
def requests():
    return []


@pytest.fixture
def shutdown(requests):
    made = ConsumerShutdown(lambda: requests.append(made.reason))
    return made


def test_there_is_no_reason_at_first(shutdown, requests):
    assert shutdown.reason is None
    assert not shutdown.may_leave_shard_end
    assert requests == []


def test_the_strongest_request_is_the_reason_and_each_one_ends_waits(shutdown, requests):
    shutdown.stop()
    shutdown.shard_ended()
    shutdown.stop()
    shutdown.lease_lost()
    shutdown.shard_ended()
    ranks = ShutdownReason
    assert requests == [
        ranks.REQUESTED,
        ranks.SHARD_END,
        ranks.SHARD_END,
        ranks.LEASE_LOST,
        ranks.LEASE_LOST,
    ]


def test_an_end_that_is_read_again_leaves_no_reason(shutdown):
    shutdown.shard_ended()
    assert not shutdown.may_leave_shard_end
    shutdown.withdraw_shard_end()
    assert shutdown.reason is None


def test_a_stopping_worker_may_leave_the_end_to_the_next_owner_and_still_stops(shutdown):
    shutdown.shard_ended()
    shutdown.stop()
    assert shutdown.reason is ShutdownReason.SHARD_END
    assert shutdown.may_leave_shard_end
    shutdown.withdraw_shard_end()
    assert shutdown.reason is ShutdownReason.REQUESTED
    assert not shutdown.may_leave_shard_end


def test_a_lost_lease_stays_lost(shutdown):
    shutdown.stop()
    shutdown.lease_lost()
    shutdown.withdraw_shard_end()
    assert shutdown.reason is ShutdownReason.LEASE_LOST


def test_a_hand_over_is_a_stop_for_which_somebody_waits(shutdown, requests):
    shutdown.stop()
    assert not shutdown.is_handing_over
    shutdown.hand_over()
    assert shutdown.is_handing_over
    assert requests == [ShutdownReason.REQUESTED] * 2
    shutdown.shard_ended()
    assert shutdown.may_leave_shard_end
    shutdown.withdraw_shard_end()
    assert shutdown.reason is ShutdownReason.REQUESTED
