"""Intents go forward, and one number means one batch."""

import pytest

from mld.decide.intending import check_intent
from mld.errors import CheckpointRefused
from mld.model.intent import LeaseIntent

STORED = LeaseIntent(3, "a", "b", "c")


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        (None, STORED),
        (None, LeaseIntent(900, "a", "b", "c")),
        (STORED, STORED),
        (STORED, LeaseIntent(4, "b", "d", "c")),
        (STORED, LeaseIntent(9, "b", "d", "c")),
    ],
)
def test_an_intent_may_be_the_first_the_same_or_a_later_one(stored, asked):
    check_intent(stored, asked)


@pytest.mark.parametrize(
    ("stored", "asked", "name", "why"),
    [
        (
            STORED,
            LeaseIntent(2, "a", "b", "c"),
            "IllegalArgumentException",
            "2 comes after intent 3",
        ),
        (STORED, LeaseIntent(3, "a", "b", "d"), "IllegalArgumentException", "other contents"),
    ],
)
def test_an_intent_that_a_sink_would_misunderstand_is_refused(stored, asked, name, why):
    with pytest.raises(CheckpointRefused, match=why) as refused:
        check_intent(stored, asked)
    assert refused.value.error_name == name
