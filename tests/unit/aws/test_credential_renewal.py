"""Keys that expire: who is asked for new ones, when, and what serves meanwhile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.credentials import Credentials, DeferredRefreshableCredentials
from botocore.exceptions import ClientError, CredentialRetrievalError, EndpointConnectionError

from kcl_mld.aws.credential_renewal import PAUSE_S, renewed
from kcl_mld.errors import ThreadRefused

if TYPE_CHECKING:
    from collections.abc import Callable

START = datetime(2026, 1, 1, tzinfo=UTC)
DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")


class Role:
    """A role whose keys live for an hour, and a clock by hand; it fails while it has an error."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.asked = -1  # the first keys are of the start
        self.lives = timedelta(hours=1)
        self.error: Exception | None = None
        self.no_threads = False
        self.brings: dict[str, Any] = {}
        self.credentials: Any = renewed(self.load, monotonic=lambda: self.now_s, start=self.start)

    def load(self) -> Credentials:
        return DeferredRefreshableCredentials(self.ask, "assume-role", time_fetcher=self.now)

    def start(self, work: Callable[[], None], name: str) -> None:
        """A thread that is done at once."""
        if self.no_threads:
            raise ThreadRefused(name)
        work()

    def now(self) -> datetime:
        return START + timedelta(seconds=self.now_s)

    def keys(self) -> dict[str, str]:
        until = (self.now() + self.lives).isoformat()
        return {
            "access_key": f"key-{self.asked}",
            "secret_key": "s",
            "token": "t",
            "expiry_time": until,
        }

    def ask(self) -> dict[str, str]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.keys() | self.brings

    def used(self) -> str:
        return str(self.credentials.get_frozen_credentials().access_key)


@pytest.fixture
def role() -> Role:
    return Role()


def test_nobody_is_asked_before_the_keys_are_due(role: Role) -> None:
    role.now_s = 44 * 60
    assert [role.used() for _ in range(3)] == ["key-0"] * 3
    assert role.asked == 0
    role.now_s = 46 * 60
    assert [role.used() for _ in range(3)] == ["key-1"] * 3


@pytest.mark.parametrize("minute", [46, 55, 59.9])
def test_old_keys_serve_until_they_expire_and_one_request_in_five_seconds_asks(
    role: Role, minute: float
) -> None:
    role.error = DENIED
    role.now_s = minute * 60
    assert [role.used() for _ in range(50)] == ["key-0"] * 50
    assert role.asked == 1
    role.now_s += PAUSE_S
    assert role.used() == "key-0"
    assert role.asked == 2
    role.error = None
    assert role.used() == "key-0"
    role.now_s += PAUSE_S
    assert role.used() == "key-3"


def test_keys_that_expired_are_an_error_at_once_and_asked_for_seldom(role: Role) -> None:
    role.error = DENIED
    role.now_s = 61 * 60
    for _ in range(50):
        with pytest.raises(CredentialRetrievalError, match="AccessDenied"):
            role.used()
    assert role.asked == 1
    role.error = None
    role.now_s += PAUSE_S
    assert role.used() == "key-2"


USELESS = {
    "expired": ({"expiry_time": START.isoformat()}, "still expired"),
    "null": ({"access_key": None}, "access key is null"),
    "empty": ({"secret_key": " "}, "secret key is empty"),
    "no text": ({"secret_key": 5}, "secret key is no text"),
    "token": ({"token": ["t"]}, "session token is no text"),
}


@pytest.mark.parametrize(("brings", "why"), USELESS.values(), ids=USELESS)
def test_keys_of_no_use_do_not_take_the_place_of_good_ones(
    role: Role, brings: dict[str, Any], why: str
) -> None:
    role.brings = brings
    for minute in (46, 55, 59.9):
        role.now_s = minute * 60
        assert role.used() == "key-0"
    assert role.asked == 3
    role.now_s = 61 * 60
    with pytest.raises(CredentialRetrievalError, match=why):
        role.used()
    role.brings = {}
    role.now_s += PAUSE_S
    assert role.used() == "key-5"


def test_keys_of_no_use_are_told_once_a_minute_without_the_keys(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mld")
    role.brings = {"access_key": None, "secret_key": "geheim", "token": "geheim"}
    for second in range(0, 121, 5):
        role.now_s = 50 * 60 + second
        assert role.used() == "key-0"
    assert role.asked == 25
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 3
    assert all("assume-role" in line and "access key is null" in line for line in told)
    assert "geheim" not in caplog.text
    role.brings = {}
    role.now_s += PAUSE_S
    role.used()
    assert "Received new credentials from assume-role" in caplog.text


def test_an_error_of_any_class_is_one_of_the_credentials(role: Role) -> None:
    role.error = KeyError("Credentials")
    role.now_s = 61 * 60
    with pytest.raises(CredentialRetrievalError, match=r"can't be read: KeyError: 'Credentials'"):
        role.used()


def test_where_no_thread_can_be_started_a_request_asks_that_has_no_keys_left(
    role: Role, caplog: pytest.LogCaptureFixture
) -> None:
    role.no_threads = True
    role.now_s = 55 * 60
    assert role.used() == "key-0"
    assert role.asked == 0
    assert "limit of processes" in caplog.text
    role.now_s = 61 * 60
    assert role.used() == "key-1"


def test_keys_that_live_for_minutes_are_not_asked_for_with_every_request(role: Role) -> None:
    role.now_s, role.lives = 46 * 60, timedelta(minutes=5)
    assert [role.used() for _ in range(50)] == ["key-1"] * 50
    assert role.asked == 1


def test_keys_that_never_were_are_asked_for_and_none_serve() -> None:
    role = Role()
    role.error = EndpointConnectionError(endpoint_url="https://sts")
    role.credentials = renewed(role.load, monotonic=lambda: role.now_s, start=role.start)
    role.error = DENIED
    with pytest.raises(CredentialRetrievalError, match="AccessDenied"):
        role.used()
    role.error, role.now_s = None, PAUSE_S
    assert role.used() == "key-3"


def test_a_refusal_at_the_start_is_raised_as_it_came(role: Role) -> None:
    role.error = DENIED
    with pytest.raises(ClientError):
        renewed(role.load, start=role.start)


def test_keys_that_do_not_expire_are_the_providers_own(role: Role) -> None:
    plain = Credentials("key", "s")
    assert renewed(lambda: plain, start=role.start) is plain
    assert renewed(lambda: None, start=role.start) is None


def test_a_provider_that_has_no_more_keys_leaves_the_old_ones(role: Role) -> None:
    brought = [role.load()]
    credentials = renewed(lambda: brought.pop() if brought else None, start=role.start)
    assert credentials is not None
    role.now_s = 46 * 60
    assert [credentials.get_frozen_credentials().access_key for _ in range(3)] == ["key-1"] * 3
