"""Which records of a batch fail, found by halving it. Pure: who asks runs the halves.

Sound for a function only that treats each record by itself: whether one fails must not depend on
its company.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class TooManyFail(Exception):
    """More records fail than may be set aside: it is the function that is wrong, or the schema."""


def guilty(count: int, most: int, fails: Callable[[int, int], bool]) -> list[int]:
    """The records that fail, in order.

    Where one half is fine, the other one must be what failed, and is not asked as a whole. But a
    record is only ever named after it has failed alone, so a fault that has passed meanwhile, or
    one that needs company, names nobody.

    Args:
        count: of records that have failed together, >= 1.
        most: how many may be named.
        fails: whether the records ``begin <= n < end`` fail; asked some
            ``log2(count)`` times for each record that does.

    Raises:
        TooManyFail: more than ``most`` fail.
        Exception: of ``fails``.
    """
    found: list[int] = []

    def look(begin: int, end: int, *, is_known: bool) -> bool:
        """Name those in a part; False if the part as a whole is fine."""
        if (end - begin == 1 or not is_known) and not fails(begin, end):
            return False
        if end - begin == 1:
            if len(found) == most:
                raise TooManyFail
            found.append(begin)
            return True
        middle = (begin + end) // 2
        is_left = look(begin, middle, is_known=False)
        look(middle, end, is_known=not is_left)
        return True

    look(0, count, is_known=True)
    return found
