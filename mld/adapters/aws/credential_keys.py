"""What keys that somebody brings must be, and what to say of an error on the way to them.

Programs and servers of the operator make the keys, and botocore trusts them: it puts whatever they
bring into the place of keys that are still good, and lets through whatever an answer of another
form leads to, of any class.
"""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Any

from botocore.credentials import RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError as BotoConnectionError,
    HTTPClientError,
)

from mld.adapters.aws.errors import service_error
from mld.errors import CredentialsRefused, Denied

if TYPE_CHECKING:
    from datetime import datetime


class UselessKeys(Exception):
    """Somebody brought keys that sign nothing; the message says why, without the keys."""


def why_failed(error: Exception) -> str:
    """What to say of an error on the way to credentials, and what to do about it.

    botocore's messages name files, profiles and roles, never keys.
    """
    if isinstance(error, ClientError):
        return f"{error}{_remedy(error)}"
    if isinstance(error, BotoCoreError | OSError | RuntimeError | UselessKeys):
        return str(error)
    return f"its answer or a setting of it can't be read: {type(error).__name__}: {error}"


def is_out_of_reach(error: BaseException | None) -> bool:
    """Whether whoever gives keys was not reached, or is in trouble: it may pass within seconds."""
    while error is not None:
        if isinstance(error, HTTPClientError | BotoConnectionError):
            return True
        if isinstance(error, ClientError):
            return bool(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500)
        error = error.__cause__
    return False


def require_texts(access_key: object, secret_key: object, token: object) -> None:
    """Of one set of keys; the token may be None.

    Raises:
        UselessKeys: one of them is not there, is empty, or is no text.
    """
    for what, key in (("access key", access_key), ("secret key", secret_key)):
        if not isinstance(key, str) or not key.strip():
            raise UselessKeys(f"it brought keys whose {what} is {_instead(key)}")
    if token is not None and not isinstance(token, str):
        raise UselessKeys("it brought keys whose session token is no text")


def of_use(brought: Any, now: datetime) -> dict[str, Any]:
    """New keys as botocore's credentials take them, their expiry with a time zone.

    Args:
        brought: by whoever was asked; of any form.
        now: with a time zone.

    Raises:
        UselessKeys: they would sign nothing.
        Exception: of any class, for what can't be read.
    """
    if not brought:  # so botocore's metadata client tells that it met an error
        raise UselessKeys("it brought no keys")
    require_texts(brought["access_key"], brought["secret_key"], brought["token"])
    # All forms that botocore reads, ISO 8601 among them.
    until = with_zone(RefreshableCredentials._expiry_datetime(brought["expiry_time"]))  # noqa: SLF001
    if until <= now:
        raise UselessKeys(f"it brought keys that had expired: at {until.isoformat()}")
    return {**brought, "expiry_time": until.isoformat()}


def with_zone(expiry: datetime) -> datetime:
    """A program that leaves the zone out means UTC; botocore could not compare it with anything."""
    return expiry if expiry.tzinfo is not None else expiry.replace(tzinfo=UTC)


def _remedy(error: ClientError) -> str:
    """What to do about a refusal of the service that gives keys, as the end of a sentence."""
    kind = service_error(error, writes=False)
    if isinstance(kind, CredentialsRefused):
        return (
            ". Renew the keys or the token with which the role is assumed,"
            " or set the clock of this machine right"
        )
    if isinstance(kind, Denied) and error.operation_name.startswith("AssumeRole"):
        return (
            f". Allow sts:{error.operation_name} on this role to whoever assumes it, in the policy"
            " of that one and in the trust policy of the role"
        )
    return ""


def _instead(key: object) -> str:
    if key is None:
        return "null"
    return "empty" if isinstance(key, str) else "no text"
