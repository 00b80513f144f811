"""A failed call to AWS in the words of pages and verdicts: what failed, and what a person can do.

Every page that reports a failing call shows the same two texts, see :class:`FailedCall`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcl_mld.errors import (
    AwsError,
    CredentialsRefused,
    Denied,
    InUse,
    LimitExceeded,
    MalformedData,
    NameNotKnown,
    NotFound,
    Throttled,
    UnknownOutcome,
    Unreachable,
)
from kcl_mld.kernel.model.masking import MASK, mask, printable

#: Of an error; what is longer says nothing more.
SHOWN_CHARACTERS = 300
_ACCOUNT = re.compile(r"(?<![0-9])[0-9]{12}(?![0-9])")

_SHARED = (
    "see who else reads the shard, since all its readers share 5 calls and 2 MB a second; "
    "retrievalMode = FANOUT or more shards give more"
)
_SUBSCRIPTIONS = "a consumer may subscribe five times a second to a shard, so this ends by itself"
_ON_THE_WAY: tuple[tuple[type[AwsError], str], ...] = (
    (
        NameNotKnown,
        "see DNS, the region in the file, and the VPC endpoint, as its name can't be resolved",
    ),
    (Unreachable, "see the route to the endpoint: proxy, security group, VPC endpoint"),
    (
        UnknownOutcome,
        "see the route to the endpoint (proxy, security group, VPC endpoint), as no answer arrives",
    ),
)
#: The first that fits.
_READING: tuple[tuple[type[AwsError], str], ...] = (
    (CredentialsRefused, "renew the credentials, or set the clock of this machine right"),
    (Denied, "allow kinesis:{operation} on the stream"),
    (
        Throttled,
        _SHARED,
    ),
    (LimitExceeded, "see what else calls {operation} in this account, which limits its rate"),
    (InUse, "see who else reads the stream by this consumer, which has one reader for each shard"),
    (NotFound, "see whether the stream was deleted or created again"),
    *_ON_THE_WAY,
)
_ON_TABLE: tuple[tuple[type[AwsError], str], ...] = (
    (NotFound, "the table is missing: restore it from a backup"),
    (CredentialsRefused, "renew the credentials, or set the clock of this machine right"),
    (Denied, "allow dynamodb:{operation} on this table"),
    (Throttled, "give the table more capacity, or on-demand billing"),
    *_ON_THE_WAY,
)


@dataclass(frozen=True, slots=True)
class FailedCall:
    """A failure for people.

    Attributes:
        error: the code first, then operation and message; at most :data:`SHOWN_CHARACTERS`
            characters, without account ids, secrets and user names of URLs.
        todo: without a full stop; "" = nothing but to wait.
    """

    error: str
    todo: str


def failed_reading(error: Exception) -> FailedCall:
    """A call to Kinesis that gets records or what leads to them."""
    return FailedCall(shown_error(error), _todo_of_reading(error))


def shown_error(error: Exception) -> str:
    """The code, operation and message of an error, as commands show it."""
    if isinstance(error, AwsError):
        text = f"{error.code} ({error.operation})" + (f": {error.message}" if error.message else "")
    else:
        text = str(error) or type(error).__name__
    text = printable(_ACCOUNT.sub(MASK, mask(text)))
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def failed_on_table(error: Exception) -> FailedCall:
    """A call to DynamoDB, or an item that can't be read."""
    return FailedCall(shown_error(error), _todo_on_table(error))


def table_remedy(error: Exception) -> str:
    """What to do about an error of a DynamoDB table, as the end of a sentence; "" = try on."""
    todo = _todo_on_table(error)
    return f". {todo[0].upper()}{todo[1:]}" if todo else ""


def _todo_on_table(error: Exception) -> str:
    if isinstance(error, MalformedData):
        return "if no worker writes it so, delete the item: the next leader makes a new one"
    return _first(_ON_TABLE, error)


def _todo_of_reading(error: Exception) -> str:
    if isinstance(error, AwsError):
        if error.code == "KMSAccessDeniedException":
            return "allow kms:Decrypt on the key of the stream"
        if error.operation == "SubscribeToShard" and isinstance(error, Throttled | LimitExceeded):
            return _SUBSCRIPTIONS
    return _first(_READING, error)


def _first(todos: tuple[tuple[type[AwsError], str], ...], error: Exception) -> str:
    for kind, todo in todos:
        if isinstance(error, kind):
            return todo.format(operation=error.operation)
    return ""
