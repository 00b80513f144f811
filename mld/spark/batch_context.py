"""What the user's function knows about its batch, and how it keeps marks of its own.

A function that writes by itself may be called again with records that it has written: after a
failure, and after a crash, then in other batches. So it keeps, in the same transaction as its
rows, one row for each shard: the position of its last record. :meth:`BatchContext.marks` has what
to store, :meth:`BatchContext.new_rows` takes out what is there already.

A stored position is a text of a fixed width, so that a database compares it as Kinesis orders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.model import SEQUENCE_COLUMN, SUB_SEQUENCE_COLUMN, range_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from kcl_mld.spark.model import MicroBatch, Position, ShardRange

#: A sequence number has at most 186 bits, a sub-sequence number is below 2**32.
_SEQUENCE_DIGITS, _SUB_DIGITS = 56, 10
_COLUMNS = ("stream_name", "shard_id", SEQUENCE_COLUMN, SUB_SEQUENCE_COLUMN)


class ShardMark(NamedTuple):
    """One row of a table of marks.

    Attributes:
        shard: its key, ``application/epoch/stream/shard id``.
        after: position that the shard's part of the batch follows; "" = the beginning.
        to: position of its last record, to be stored.
    """

    shard: str
    after: str
    to: str


def stored_text(position: Position | None) -> str:
    """A position as it is stored, 67 characters; "" for None, which is less than any other."""
    if position is None:
        return ""
    return f"{position.sequence:0{_SEQUENCE_DIGITS}d}.{position.sub:0{_SUB_DIGITS}d}"


def marks_of(application: str, epoch: str, shards: Iterable[ShardRange]) -> tuple[ShardMark, ...]:
    """What to store for each shard, in the order of their keys: who locks in it never deadlocks."""
    found = (
        ShardMark(_key(application, epoch, each), stored_text(each.after), stored_text(each.to))
        for each in shards
    )
    return tuple(sorted(found))


def covered(
    application: str, epoch: str, shards: Iterable[ShardRange], stored: Mapping[str, str]
) -> list[tuple[ShardRange, str]]:
    """The shards of which stored marks cover records of the batch, with the mark of each.

    Args:
        stored: position by key, as it was stored; a shard without one has never been written.

    Raises:
        BatchFailed: a mark lies before the batch, so records between would be lost; or it
            is no stored position.
    """
    found = []
    for each in shards:
        mark = stored.get(_key(application, epoch, each)) or ""
        after = stored_text(each.after)
        if mark and not _is_stored(mark):
            raise BatchFailed(f"{each.shard_id}: the stored mark {mark!r} is none of ctx.marks()")
        if mark and mark < after:
            raise BatchFailed(
                f"{each.shard_id}: the stored mark {mark} lies before {after}, where the batch "
                f"begins: the records between were checkpointed and are not in your data. Set the "
                f"checkpoint back, or choose a new spark.sink.epoch to go on without them"
            )
        if mark > after:
            found.append((each, mark))
    return found


def new_rows(df: DataFrame, drops: Sequence[tuple[ShardRange, str]]) -> DataFrame:
    """The records of a batch that lie beyond stored marks.

    Args:
        df: as the function got it, or with its columns of the record's place.
        drops: shards of which stored marks cover records, with the mark of each.

    Raises:
        BatchFailed: the frame lacks a column.
    """
    if not drops:
        return df
    from pyspark.sql import functions as f  # noqa: PLC0415 - after the host chose Connect

    if missing := [name for name in _COLUMNS if name not in df.columns]:
        raise BatchFailed(
            f"ctx.new_rows needs the columns {', '.join(missing)}: call it before you drop them"
        )
    position = f.concat(
        f.lpad(SEQUENCE_COLUMN, _SEQUENCE_DIGITS, "0"),
        f.lit("."),
        f.lpad(f.col(SUB_SEQUENCE_COLUMN).cast("string"), _SUB_DIGITS, "0"),
    )
    return df.where(~_any([_of(each) & (position <= f.lit(mark)) for each, mark in drops]))


def _of(each: ShardRange) -> Column:
    from pyspark.sql import functions as f  # noqa: PLC0415 - as above

    return (f.col("stream_name") == each.stream_name) & (f.col("shard_id") == each.shard_id)


def _any(conditions: Sequence[Column]) -> Column:
    """As a balanced tree: Spark's analyzer recurses as deep as the expression."""
    level = list(conditions)
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        odd = level[-1:] if len(level) % 2 else []
        level = [left | right for left, right in pairs] + odd
    return level[0]


def _key(application: str, epoch: str, each: ShardRange) -> str:
    names = (application, epoch, each.stream_name, each.shard_id)
    return "/".join(quote(name, safe="") for name in names)


def _is_stored(text: str) -> bool:
    sequence, dot, sub = text.partition(".")
    has_width = (len(sequence), len(sub)) == (_SEQUENCE_DIGITS, _SUB_DIGITS)
    return bool(dot) and has_width and (sequence + sub).isascii() and (sequence + sub).isdigit()


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What the user's function knows about its batch.

    A batch may be of several shards. What belongs to one shard is None then, and ``shards`` has it
    of each.

    Attributes:
        spark: the session; the function must not stop it.
        application: name of the KCL application.
        stream_name: name of the stream; None if they are several.
        shard_id: Kinesis shard id; None if they are several.
        batch_id: names the batch; the same when it is repeated after a failure in this process. A
            batch that is repeated without a shard that was lost meanwhile has another name.
        after: position that the batch follows; None = the beginning, or several shards.
        to: position of its last record; None if they are several.
        count: of records, >= 0.
        is_replay: True when an earlier process may have written some of it already.
        millis_behind_latest: distance to the tip of the shard in ms, the greatest of several; None
            if unknown.
        shards: what each shard has in it, in no order.
        epoch: of the output (``spark.sink.epoch``).
    """

    spark: SparkSession
    application: str
    stream_name: str | None
    shard_id: str | None
    batch_id: str
    after: Position | None
    to: Position | None
    count: int
    is_replay: bool
    millis_behind_latest: int | None
    shards: tuple[ShardRange, ...] = ()
    epoch: str = "0"

    def marks(self) -> tuple[ShardMark, ...]:
        """How far each shard has come once this batch is written, to be kept with your own data."""
        return marks_of(self.application, self.epoch, self.shards)

    def new_rows(self, df: DataFrame, stored: Mapping[str, str]) -> DataFrame:
        """The records of ``df`` that kept marks do not cover.

        Args:
            df: as the function got it, or with its columns of the record's place.
            stored: ``to`` by ``shard`` of earlier ``marks()``, read in the transaction that will
                hold the rows; a shard without one has never been written.

        Raises:
            BatchFailed: a mark lies before the batch, or a column is missing.
        """
        return new_rows(df, covered(self.application, self.epoch, self.shards, stored))


def context_of(spark: SparkSession, whole: MicroBatch) -> BatchContext:
    """What the function knows about its batch."""
    parts = whole.parts
    ranges = tuple(range_of(part) for part in parts)
    streams = {each.stream_name for each in ranges}
    behind = [each.millis_behind_latest for each in ranges if each.millis_behind_latest is not None]
    only = parts[0] if len(parts) == 1 else None
    return BatchContext(
        spark=spark,
        application=parts[0].shard.application,
        stream_name=streams.pop() if len(streams) == 1 else None,
        shard_id=only.shard.shard_id if only else None,
        batch_id=whole.batch_id,
        after=only.after if only else None,
        to=only.to if only else None,
        count=whole.count,
        is_replay=any(each.is_replay for each in ranges),
        millis_behind_latest=max(behind, default=None),
        shards=ranges,
        epoch=parts[0].shard.epoch,
    )
