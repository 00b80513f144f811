"""What one entry of a table's log says: a JSON object a line, each of them one action. Pure.

Entries are also written by others, so a line may be blank, end as on Windows, or have an action
that is null; and text inside of a line may have what only looks like the end of one.

See "Actions" in the Delta transaction log protocol.
"""

from __future__ import annotations

import json
from typing import Any


def actions_in(text: str) -> list[dict[str, Any]]:
    """The lines of an entry.

    Raises:
        ValueError: one of them is no JSON object.
    """
    actions = [json.loads(line) for line in text.split("\n") if line.strip()]
    if not all(isinstance(each, dict) for each in actions):
        raise ValueError("a line is no JSON object")
    return actions


def numbers_in(text: str) -> dict[str, int] | None:
    """The numbers of application ids; None if the entry can't be understood."""
    found: dict[str, int] = {}
    try:
        for action in actions_in(text):
            if (transaction := action.get("txn")) is not None:
                found[str(transaction["appId"])] = int(transaction["version"])
    except (ValueError, KeyError, TypeError):
        return None
    return found


def information_in(text: str) -> dict[str, Any]:
    """What the writer says of the commit (``commitInfo``); empty if nothing can be understood."""
    try:
        found = [each.get("commitInfo") for each in actions_in(text)]
    except ValueError:
        return {}
    return next((each for each in found if isinstance(each, dict)), {})


def is_restore(text: str) -> bool:
    """Whether the commit was a RESTORE; False for what can't be understood."""
    return information_in(text).get("operation") == "RESTORE"
