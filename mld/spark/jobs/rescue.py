"""Records of which a row-wise function fails are set aside, so that their batch goes on without them.

Once a batch has failed because of its rows, it is halved down to the records that fail alone. They
are kept as dead letters before the rest is committed, so a crash between the two loses nothing: the
records come again, fail again, and are found among the letters.

A record that ends its Python worker is among them, if it does so alone and twice: once may have been
a lack of memory.

Halving is sound for a function only that treats each record by itself: whether one fails must not
depend on its company.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.spark.calls import Overdue
from kcl_mld.spark.errors import BatchFailed, RecordRefused
from kcl_mld.spark.failures import describe, is_deterministic, is_worker_gone
from kcl_mld.spark.model import DeadLetter, MicroBatch
from kcl_mld.spark.plans.one_call import FunctionFailed
from kcl_mld.spark.rows.decode import bad_record_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from kcl_mld.spark.calls import JobCalls
    from kcl_mld.spark.model import Row, ShardBatch
    from kcl_mld.spark.plans.one_call import FunctionCaller

_log = logging.getLogger("mld.spark")
#: How many records of a batch may be set aside; more, and the function itself is wrong.
MOST_LETTERS = 100


def is_of_rows(error: BaseException) -> bool:
    """True if the rows, or the function, made a batch fail."""
    if isinstance(error, RecordRefused) or bad_record_in(str(error)) is not None:
        return False  # it can't be decoded, for which there is another policy
    return isinstance(error, FunctionFailed) or is_deterministic(error)


class TooManyFail(Exception):
    """More records fail than may be set aside: it is the function that is wrong, or the schema."""


class Rescue:
    """Finds the records that fail; one instance a process.

    Args:
        keep: makes records durable that are set aside; one that is there already, by its shard and
            position, is not added. After an error they may be there or not, and it may be repeated.
        timeout_s: of a whole search.
    """

    def __init__(
        self,
        caller: FunctionCaller,
        keep: Callable[[Sequence[DeadLetter]], None],
        clock: Callable[[], float],
        timeout_s: float,
    ) -> None:
        self._caller = caller
        self.keep = keep
        self._clock = clock
        self._timeout_s = timeout_s

    def find(
        self,
        calls: JobCalls,
        session: SparkSession,
        whole: MicroBatch,
        most: int,
        is_wanted: Callable[[], bool],
    ) -> list[DeadLetter]:
        """The records of a batch that fail alone; none if it does not fail any more.

        Args:
            most: how many letters there may be.
            is_wanted: False once a shard is lost.

        Raises:
            BatchFailed: it fails without any record, too many fail, or time is up.
            GivenUp: a shard is lost.
            Exception: another fault came between.
        """
        records = [(part, row) for part in whole.parts for row in part.rows]
        ends_at = self._clock() + self._timeout_s
        errors: dict[int, str] = {}

        def failure_of(part: MicroBatch) -> Exception | None:
            left_s = ends_at - self._clock()
            return self._failure_of(part, calls, session, left_s, is_wanted)

        def fails(begin: int, end: int) -> bool:
            part = _part_of(whole, records[begin:end])
            error = failure_of(part)
            if error is not None and is_worker_gone(error) and end - begin == 1:
                error = failure_of(part)
            if error is not None:
                errors[begin] = describe(error)
            return error is not None

        if fails(0, 0):
            raise BatchFailed(f"{whole}: the function fails without any record: {errors[0]}")
        try:
            found = guilty(len(records), most, fails) if records else []
        except TooManyFail:
            raise BatchFailed(
                f"{whole}: more than {MOST_LETTERS} records fail, so none is set aside: {errors[0]}"
            ) from None
        except Overdue as error:
            raise BatchFailed(
                f"{whole}: the records that fail were not found within spark.batch.timeout "
                f"({self._timeout_s:g} s)"
            ) from error
        letters = [DeadLetter(records[n][0].shard, records[n][1], errors[n]) for n in found]
        for letter in letters:
            _log.warning("set aside: %s", letter)
        return letters

    def _failure_of(
        self,
        part: MicroBatch,
        calls: JobCalls,
        session: SparkSession,
        left_s: float,
        is_wanted: Callable[[], bool],
    ) -> Exception | None:
        try:
            calls.within(
                left_s, session, lambda: self._caller.probe(session, part), is_wanted=is_wanted
            )
        except Exception as error:
            if not is_of_rows(error) and not is_worker_gone(error):
                raise
            return error
        finally:
            self._caller.release(part)
        return None


def without(batch: ShardBatch, letters: Sequence[DeadLetter]) -> ShardBatch:
    """A shard's batch without records that are set aside; its range stays."""
    gone = {letter.row.position for letter in letters if letter.shard == batch.shard}
    return replace(batch, rows=tuple(row for row in batch.rows if row.position not in gone))


def _part_of(whole: MicroBatch, records: Sequence[tuple[ShardBatch, Row]]) -> MicroBatch:
    """A batch of some of the records; with none of them it has one empty part."""
    rows: dict[int, list[Row]] = {}
    for part, row in records:
        rows.setdefault(id(part), []).append(row)
    parts = [replace(part, rows=tuple(rows[id(part)])) for part in whole.parts if id(part) in rows]
    return MicroBatch(tuple(parts) or (replace(whole.parts[0], rows=()),))


def guilty(count: int, most: int, fails: Callable[[int, int], bool]) -> list[int]:
    """The records that fail, in order.

    Where one half is fine, the other one must be what failed, and is not asked as a whole. But a
    record is only ever named after it has failed alone, so a fault that has passed meanwhile, or
    one that needs company, names none.

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
