"""What to do about errors of the table."""

from __future__ import annotations

import pytest

from mld.errors import CredentialsRefused, Denied, MldError, Throttled
from mld.services.fleet.trouble import remedy


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
