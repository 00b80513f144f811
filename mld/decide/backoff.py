"""How long to wait before the next try."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

#: 2**30 seconds exceed every cap; the exponent stops here so that it can't overflow a float.
_MAX_EXPONENT = 30


def backoff_s(attempt: int, rng: random.Random, *, first_s: float, cap_s: float) -> float:
    """Pause after a failed try: doubling, at most ``cap_s``, of which the upper half is random.

    The random half keeps many workers that failed together from coming back together; the fixed
    half keeps a worker from hammering.

    Args:
        attempt: how many tries failed before this one, from 0.
        rng: where chance comes from.
        first_s: upper bound of the first pause, > 0.
        cap_s: upper bound of all pauses, >= ``first_s``.

    Returns:
        Seconds in ``[d/2, d]`` with ``d = min(cap_s, first_s * 2**attempt)``.
    """
    longest = min(cap_s, first_s * 2.0 ** min(attempt, _MAX_EXPONENT))
    return float(longest * (0.5 + rng.random() / 2))
