"""Whether a table has every record once. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_KeyAndNumber = tuple[str, int]


def lost_rows(rows: Sequence[_KeyAndNumber], put: Collection[_KeyAndNumber]) -> list[_KeyAndNumber]:
    """Records that were put and have no row, in order.

    Args:
        rows: key and number of each.
        put: those that the stream took.
    """
    return sorted(set(put) - set(rows))


def why_not_once(
    rows: Sequence[_KeyAndNumber], put: Collection[_KeyAndNumber], unsure: Collection[_KeyAndNumber]
) -> str | None:
    """What is wrong with the rows, beside lost ones; None = nothing.

    Args:
        rows: key and number of each.
        put: those that the stream took; asked for after the rows were read.
        unsure: nobody knows how often the stream took these.
    """
    uncertain = set(unsure)
    certain = Counter(row for row in rows if row not in uncertain)
    twice = sorted(row for row, count in certain.items() if count > 1)
    if twice:
        return f"{len(twice)} records have several rows, such as {twice[0]}"
    unknown = sorted(certain.keys() - set(put))
    if unknown:
        return f"{len(unknown)} rows are of records that nobody put, such as {unknown[0]}"
    return None
