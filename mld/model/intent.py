"""What a child has said that it is about to write: an attribute of ours in the lease's row.

Java knows nothing of the attribute and never removes it, because it updates rows and never puts
them; so do we. It is in a map of its own, because ``pendingCheckpoint`` would be removed by every
checkpoint of Java and of ours.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mld.errors import MalformedData

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Name of the attribute.
INTENT = "kclMldIntent"
_TEXTS = ("after", "to", "appId")
#: As many digits as DynamoDB counts exactly.
_NUMBER = re.compile(r"[0-9]{1,38}\Z")


@dataclass(frozen=True, slots=True)
class LeaseIntent:
    """One batch that a child wanted to write; only the number means something to the daemon.

    Attributes:
        number: >= 1; it never goes back in a row, and one number has one content.
        after: position that the batch follows, at most 256 characters, as the other texts.
        to: position that it ends with.
        app_id: who writes.
    """

    number: int
    after: str
    to: str
    app_id: str


def intent_attribute(intent: LeaseIntent) -> dict[str, Any]:
    """The value of the attribute."""
    return {
        "M": {
            "n": {"N": str(intent.number)},
            "after": {"S": intent.after},
            "to": {"S": intent.to},
            "appId": {"S": intent.app_id},
        }
    }


def intent_from(attribute: Mapping[str, Any] | None) -> LeaseIntent | None:
    """The intent of a row; None where it has none.

    Raises:
        MalformedData: the attribute is no intent of ours. A child that is told of none could skip
            a batch or write one twice, so nobody may read the shard until it is mended.
    """
    if attribute is None:
        return None
    content = attribute.get("M")
    if content is None:
        raise MalformedData(f"{INTENT} is of type {'/'.join(attribute)}, not M")
    number = str(content.get("n", {}).get("N", ""))
    texts = [content.get(name, {}).get("S") for name in _TEXTS]
    if not _NUMBER.match(number) or int(number) < 1:
        raise MalformedData(f"{INTENT}.n is not a whole number from 1 on")
    for name, text in zip(_TEXTS, texts, strict=True):
        if not isinstance(text, str):
            raise MalformedData(f"{INTENT}.{name} is not a text")
    return LeaseIntent(int(number), *texts)
