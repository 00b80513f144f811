"""Whether an intent may follow the one that is stored.

A sink tells a new batch from a repeated one by the number alone, so a number that went back, or
that stood for two batches, would make it drop one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.errors import CheckpointRefused

if TYPE_CHECKING:
    from mld.model.intent import LeaseIntent

ILLEGAL_ARGUMENT = "IllegalArgumentException"


def check_intent(stored: LeaseIntent | None, asked: LeaseIntent) -> None:
    """Return when ``asked`` may be stored; the very intent that is stored may be stored again.

    Raises:
        CheckpointRefused: its number is lower, or stands for something else already.
    """
    if stored is None:
        return
    if asked.number < stored.number:
        raise CheckpointRefused(
            ILLEGAL_ARGUMENT, f"intent {asked.number} comes after intent {stored.number}"
        )
    if asked.number == stored.number and asked != stored:
        raise CheckpointRefused(
            ILLEGAL_ARGUMENT, f"intent {asked.number} is stored with other contents"
        )
