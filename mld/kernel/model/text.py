"""Phrases that several messages share."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun, e.g. ``1 shard``, ``2 shards``."""
    return f"{number} {one if number == 1 else many}"


def lasted(seconds: float) -> str:
    """A time that passed, for people, e.g. ``14 s``, ``5 min``, ``1.5 h``, ``3 d``.

    The console's page shows times in the same way.
    """
    if seconds < 120:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    hours = seconds / 3600
    return _short(hours, "h") if hours < 48 else _short(hours / 24, "d")


def _short(number: float, unit: str) -> str:
    return f"{number:.1f}".removesuffix(".0") + f" {unit}"
