"""When the clock of a machine is wrong, and how that is said."""

from __future__ import annotations

#: Workers take each other for dead after a minute without a report, AWS refuses a request after five.
WRONG_S = 60.0


def wrong_by_s(ahead_s: float | None) -> float | None:
    """By how much a clock is wrong; None = it isn't, or nothing is known.

    Args:
        ahead_s: seconds by which it is ahead of AWS, negative = behind.
    """
    return None if ahead_s is None or abs(ahead_s) <= WRONG_S else ahead_s


def offset_text(ahead_s: float) -> str:
    """An offset for people, e.g. ``300 s behind AWS``."""
    return f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} AWS"
