"""Phrases that several messages share."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """A number with its noun, e.g. ``1 shard``, ``2 shards``."""
    return f"{number} {one if number == 1 else many}"
