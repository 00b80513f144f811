"""Rows that still name a worker which has released what it held."""

import pytest

from kcl_mld.leases.rules.last_look import last_look
from tests.fakes.lease_world import lease

KEY = lease().lease_key


@pytest.mark.parametrize(
    ("owners", "is_released", "are_coming"),
    [
        ({"lease_owner": "me"}, True, False),
        ({"lease_owner": "you", "checkpoint_owner": "me"}, True, False),
        ({"lease_owner": "me", "checkpoint_owner": "you"}, False, True),
        ({"lease_owner": "you"}, False, False),
        ({"lease_owner": "you", "checkpoint_owner": "other"}, False, False),
        ({}, False, False),
    ],
)
def test_what_is_released_and_what_is_still_to_come(owners, is_released, are_coming):
    row = lease(**owners)
    found = last_look([row], "me", set())
    assert found.to_release == ((row,) if is_released else ())
    assert found.are_coming == are_coming


def test_what_is_held_is_left_to_its_consumer():
    rows = [lease(lease_owner="me"), lease(1, lease_owner="me", checkpoint_owner="you")]
    found = last_look(rows, "me", {row.lease_key for row in rows})
    assert found.to_release == ()
    assert not found.are_coming
