"""How many records a function is called for at once, while it returns more than one job may bring.

One instance a process: a later batch begins at the size that was good for the last one, so a
function that returns too much fails once and not once a batch. Now and then a larger size is tried,
the seldomer the more often that failed.
"""

from __future__ import annotations

#: Parts of the full size that go well before a larger one is tried: at first, at least, at most.
_PATIENCE, _LEAST_PATIENCE, _MOST_PATIENCE = 8, 2, 64


class PartSize:
    """Used by one job at a time.

    Attributes:
        records: the most of a part, >= 1; None = no result was too large yet.
    """

    def __init__(self) -> None:
        self.records: int | None = None
        self._good = 0
        self._good_parts = 0
        self._patience = _PATIENCE

    def too_large(self, count: int) -> bool:
        """The result of so many records, >= 2, was too large.

        Returns:
            True at the first time.
        """
        is_first = self.records is None
        was_tried = 0 < self._good < count
        self.records = self._good if was_tried else count // 2
        self._good = self._good if was_tried else 0
        if was_tried:
            self._patience = min(_MOST_PATIENCE, 2 * self._patience)
        self._good_parts = 0
        return is_first

    def went_well(self, count: int) -> None:
        """The result of so many records was brought."""
        if self.records is None or count < self.records:
            return  # there were no more, which says nothing of a full part
        if 0 < self._good < count:
            self._patience = max(_LEAST_PATIENCE, self._patience // 2)
        self._good = count
        self._good_parts += 1
        if self._good_parts >= self._patience:
            self._good_parts = 0
            self.records = count + max(1, count // 2)
