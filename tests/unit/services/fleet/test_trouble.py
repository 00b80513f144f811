"""What to do about errors of the table."""

from __future__ import annotations

import pytest

from mld.decide.readiness import Reason
from mld.errors import CredentialsRefused, Denied, MldError, Throttled
from mld.services.conditions import Conditions
from mld.services.fleet.trouble import Trouble, remedy
from tests.fakes.clock import FakeClock


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Denied("UpdateItem", "AccessDeniedException"), "Allow dynamodb:UpdateItem on this table"),
        (CredentialsRefused("UpdateItem", "ExpiredTokenException"), "Renew the credentials"),
        (CredentialsRefused("UpdateItem", "RequestExpired"), "set the clock of this machine right"),
    ],
)
def test_the_remedy_is_that_of_the_error(error: MldError, says: str) -> None:
    assert says in remedy(error)
    assert ("Allow" in remedy(error)) is ("Allow" in says)


def test_what_passes_by_itself_has_no_remedy() -> None:
    assert remedy(Throttled("UpdateItem", "ThrottlingException")) == ""


def test_what_comes_and_goes_counts_as_lasting_where_it_has_to_be_calm_first(caplog) -> None:
    caplog.set_level("INFO")
    conditions, clock = Conditions(), FakeClock()
    trouble = Trouble(
        Reason.LEASE_WRITES_FAIL, conditions, clock, lasting_s=10.0, calm_s=10.0, is_logged=False
    )
    for _ in range(4):
        trouble.met("it fails")
        clock.advance(3.0)
        trouble.over()
    assert conditions.current() == ()
    trouble.met("it fails")
    assert [one.message for one in conditions.current()] == ["it fails"]
    clock.advance(9.9)
    trouble.over()
    assert conditions.current() != ()
    clock.advance(0.1)
    trouble.over()
    assert conditions.current() == ()
    assert caplog.messages == ["Resolved after 22 s: it fails"]
