"""What conformance means, item by item: the list that every report goes through.

The items come from observing the Java MultiLangDaemon (KCL 3.5.1) and kclpy 3.2.0. Those named
``CHILD-nn`` are the rules that hold for children in any language.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal, TypeAlias

Kit: TypeAlias = Literal["child", "daemon"]


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to show.

    Attributes:
        id: e.g. ``WIRE-03``.
        group: the part of the id before the dash.
        quirk: the Java daemon surprises here; an implementation may decide otherwise.
        given: the situation.
        then: what the Java daemon (``PY``: kclpy) does.
        kit: which kit judges it; None when neither can.
        reason: why no kit can judge it; None when one can.
    """

    id: str
    group: str
    quirk: bool
    given: str
    then: str
    kit: Kit | None
    reason: str | None


def _child(number: int, given: str, then: str) -> Item:
    return Item(
        id=f"CHILD-{number:02d}",
        group="CHILD",
        quirk=False,
        given=given,
        then=then,
        kit="child",
        reason=None,
    )


#: Rules for a child in any language.
CHILD_RULES = (
    _child(1, "initialize", "answered with its status"),
    _child(2, "processRecords with records", "answered with its status"),
    _child(3, "processRecords with no records and unknown lag", "answered with its status"),
    _child(4, "processRecords of 10,000 records in one line of several MB", "answered in time"),
    _child(5, "partition keys with quotes, control characters and raw UTF-8", "answered"),
    _child(6, "empty data, and data with + and / in base64", "answered"),
    _child(7, "records of a KPL aggregate: one sequence number, several sub-numbers", "answered"),
    _child(8, "shutdownRequested", "answered with its status"),
    _child(9, "leaseLost", "answered, without asking for a checkpoint"),
    _child(10, "shardEnded", "asks for a checkpoint at null or SHARD_END, then answers"),
    _child(11, "any action", "checkpoint requests have only the known fields, of the known types"),
    _child(12, "a checkpoint is refused", "the child lives on and answers the action"),
    _child(13, "any action", "one status, after which it is silent until the next action"),
    _child(14, "any action", "every message has a line of its own"),
    _child(15, "end of stdin after leaseLost", "the process ends within 5 s with exit code 0"),
    _child(16, "end of stdin while idle", "the process ends within 5 s"),
    _child(17, "initialize at digits with a sub-sequence number, or at a sentinel", "answered"),
    _child(18, "initialize with further flat keys", "answered: unknown keys are ignored"),
    _child(19, "end of stdin before initialize", "the process ends within 5 s"),
)


@cache
def load() -> tuple[Item, ...]:
    """All items: those of the two reference implementations, then the rules for children."""
    rows = json.loads(files(__name__.rpartition(".")[0]).joinpath("items.json").read_text("utf-8"))
    return tuple(Item(**row) for row in rows) + CHILD_RULES


def by_id() -> dict[str, Item]:
    """The items under their ids."""
    return {item.id: item for item in load()}
