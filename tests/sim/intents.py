"""The judge of intents and ticks: S8.

S8  an intent's number never goes back in a row, one number has one content, only the holder writes
    one, no write removes it, and a child is told the one that is stored; nobody gets a tick unasked
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from protocol import Initialize, ProcessRecords, intent_in

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Mapping

    from tests.sim.children import SimChild

    Item = Mapping[str, Mapping[str, Any]]

ATTRIBUTE = "kclMldIntent"
_SETS_INTENT = re.compile(rf"\b{ATTRIBUTE} = ")


def intent_of(item: Item | None) -> tuple[int, str, str, str] | None:
    """Number, after, to and app id in a row; None without an intent."""
    if item is None or ATTRIBUTE not in item:
        return None
    content = item[ATTRIBUTE]["M"]
    texts = (str(content[name]["S"]) for name in ("after", "to", "appId"))
    return (int(content["n"]["N"]), *texts)  # type: ignore[return-value]


def intent_sent(request: Mapping[str, Any]) -> str | None:
    """The number that a request wants to store; None when it stores no intent."""
    if not _SETS_INTENT.search(request.get("UpdateExpression", "")):
        return None
    return str(request["ExpressionAttributeValues"][f":{ATTRIBUTE}"]["M"]["n"]["N"])


class IntentJudge:
    """One rule over one run."""

    def __init__(self, convict: Callable[[str, str], None], counts: Counter[str]) -> None:
        self._convict = convict
        self._counts = counts

    def wrote(self, key: str, actor: str, holder: str | None, before: Item, after: Item) -> None:
        """A row changed.

        Args:
            key: of the row.
            actor: who wrote.
            holder: who might.
            before: the row until then.
            after: the row from then on.
        """
        old, new = intent_of(before), intent_of(after)
        if old == new:
            return
        self._counts["intent stored"] += 1
        if new is None:
            self._convict("S8", f"{actor} removed the intent of {key}")
            return
        if actor != holder:
            self._convict("S8", f"{actor} intended for {key}, which is {holder}'s")
        if before["leaseCounter"] == after["leaseCounter"]:
            self._convict("S8", f"{actor} intended for {key} without raising its counter")
        if old is not None and new[0] < old[0]:
            self._convict("S8", f"the intent of {key} went back from {old[0]} to {new[0]}")
        if old is not None and new[0] == old[0]:
            self._convict("S8", f"intent {new[0]} of {key} was given other contents")

    def told(self, child: SimChild, message: Any, row: Item | None, holder: str | None) -> None:
        """A child was told something; ``row`` is its lease's as it is now."""
        match message:
            case Initialize(extras=extras) if holder == child.worker:
                intent = intent_in(extras)
                said = intent and (intent.number, intent.after, intent.to, intent.app_id)
                if said != intent_of(row):
                    stored = intent_of(row)
                    self._convict(
                        "S8", f"{child.worker} told of intent {said}, but {stored} is stored"
                    )
            case ProcessRecords(records=()):
                self._counts["tick"] += 1
                if not child.asked_for_ticks:
                    self._convict("S8", f"{child.worker} sent a tick that nobody asked for")
            case _:
                pass
