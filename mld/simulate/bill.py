"""What the lease table is asked for, and what DynamoDB charges for it on demand."""

from __future__ import annotations

import math
from dataclasses import dataclass

#: Size of a lease row with what DynamoDB adds, and of the other items of a 3.x table.
LEASE_BYTES = 450
#: Size of a key in the index by owner.
KEY_BYTES = 100
#: A page of a scan or query.
_PAGE_BYTES = 1_048_576
_UNIT_BYTES = 4096
SECONDS_PER_HOUR = 3600.0
#: Dollars per million request units on demand; the given rate where the user gives none.
PRICE_READ = 0.125
PRICE_WRITE = 0.625


@dataclass(slots=True)
class Bill:
    """Requests and request units since the start; floats, as many are counted by their rate.

    Attributes:
        reads: requests that read.
        writes: requests that write, refused ones included.
        read_units: DynamoDB's read request units.
        write_units: DynamoDB's write request units; an index costs its own.
    """

    reads: float = 0.0
    writes: float = 0.0
    read_units: float = 0.0
    write_units: float = 0.0

    def scan(self, items: int, times: float = 1.0) -> None:
        """Count reads of the whole table, eventually consistent."""
        size = items * LEASE_BYTES
        self.reads += times * max(1, math.ceil(size / _PAGE_BYTES))
        self.read_units += times * _eventual(size)

    def query(self, keys: int, times: float = 1.0) -> None:
        """Count queries of the index for one worker's keys."""
        self.reads += times
        self.read_units += times * _eventual(keys * KEY_BYTES)

    def get(self, times: float = 1.0, *, consistent: bool = False) -> None:
        """Count reads of one item."""
        self.reads += times
        self.read_units += times * (1.0 if consistent else 0.5)

    def write(self, times: float = 1.0, *, index_units: int = 0) -> None:
        """Count writes of one item; a change of its owner is written to the index, too."""
        self.writes += times
        self.write_units += times * (1 + index_units)

    def price(self, price_read: float, price_write: float) -> float:
        """What it costs at so many dollars per million units."""
        return (self.read_units * price_read + self.write_units * price_write) / 1e6


def _eventual(size: int) -> float:
    return max(1, math.ceil(size / _UNIT_BYTES)) / 2
