"""Iceberg tables without Spark: a catalog whose answers get lost, workers, and what is in a table."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from kcl_mld.spark.iceberg.commit import TableCommit
from kcl_mld.spark.iceberg.table import IcebergTable
from tests.unit.spark.table_kit import BASE, batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kcl_mld.spark.model import ShardBatch, ShardKey

NAME = ("ns", "rows")
SCHEMA = Schema(
    NestedField(1, "shard_id", StringType(), required=False),
    NestedField(2, "n", LongType(), required=False),
)
LOCAL_FILES = "kcl_mld.spark.iceberg.local_files.LocalFiles"


def catalog_in(folder: Path, kind: type[SqlCatalog] = SqlCatalog) -> Any:
    """A catalog in a directory, with a namespace."""
    folder.mkdir(parents=True, exist_ok=True)
    found = kind(
        "default",
        uri=f"sqlite:///{folder}/catalog.db",
        warehouse=f"file://{folder}",
        **{"py-io-impl": LOCAL_FILES},
    )
    found.create_namespace_if_not_exists(NAME[:-1])
    return found


def make_table(catalog: Any) -> Any:
    return catalog.create_table(NAME, SCHEMA, properties={"format-version": "2"})


class Told(SqlCatalog):
    """A catalog whose ``commit_table`` may do as it is told.

    Attributes:
        fates: what the next calls do, in order: see ``FATES``; then they are as usual.
        before: called within a commit, before anything is done.
        under_way: requests that nobody waits for, and that may still arrive.
    """

    def __init__(self, name: str, **properties: str) -> None:
        super().__init__(name, **properties)
        self.fates: list[str] = []
        self.before: list[Callable[[], object]] = []
        self.under_way: list[tuple[Any, ...]] = []
        self.calls = 0

    def commit_table(self, table, requirements, updates):
        if self.before:
            self.before.pop(0)()
        self.calls += 1
        fate = self.fates.pop(0) if self.fates else "usual"
        if fate == "refused":
            raise CommitFailedException("not even tried")
        if fate == "unreached":
            raise ConnectionError("nobody there")
        if fate == "late":
            self.under_way.append((table, requirements, updates))
            raise TimeoutError("no answer")
        answer = super().commit_table(table, requirements, updates)
        if fate == "stands, refused":  # a transport has asked twice
            raise CommitFailedException("the branch has changed")
        if fate == "stands, unknown":
            raise CommitStateUnknownException("it stands")
        if fate == "stands, broken":
            raise ConnectionError("it stands")
        return answer

    def arrive(self) -> None:
        """A request that nobody waits for any more arrives."""
        if self.under_way:
            with contextlib.suppress(CommitFailedException):
                super().commit_table(*self.under_way.pop(0))


FATES = (
    "usual",
    "refused",
    "unreached",
    "late",
    "stands, refused",
    "stands, unknown",
    "stands, broken",
)


def marked(catalog: Any, application: str = "app", epoch: str = "0") -> IcebergTable:
    """The table as one worker sees it."""
    return IcebergTable(catalog, NAME, application, epoch)


def arrow_of(*batches: ShardBatch, keep: Callable[[int], bool] = lambda _: True) -> pa.Table:
    numbers = [
        (each.shard.shard_id, row.position.sequence - BASE)
        for each in batches
        for row in each.rows
        if keep(row.position.sequence - BASE)
    ]
    return pa.table(
        {
            "shard_id": pa.array([shard for shard, _ in numbers], pa.string()),
            "n": pa.array([number for _, number in numbers], pa.int64()),
        }
    )


def commit(
    table: IcebergTable,
    *batches: ShardBatch,
    keep: Callable[[int], bool] = lambda _: True,
    pause: Callable[[float], object] = lambda _: None,
    draw: Callable[[], float] = lambda: 0.5,
) -> list[str]:
    """What became of each shard; it does not wait."""
    made = TableCommit(
        table, batches, lambda _: arrow_of(*batches, keep=keep), pause=pause, draw=draw
    )
    found = made.run()
    return [str(found[each.shard]) for each in batches]


def rows_in(catalog: Any) -> Counter[tuple[str, int]]:
    """How often each row is in the table, as pyiceberg reads it."""
    table = catalog.load_table(NAME).scan().to_arrow()
    pairs = zip(table["shard_id"].to_pylist(), table["n"].to_pylist(), strict=True)
    return Counter((shard[-1], number) for shard, number in pairs)


@dataclass
class Storm:
    """Workers that commit batches, some without rows; some own a shard no more and don't know it.

    Attributes:
        seed: of all that is drawn.
    """

    catalog: Told
    shards: list[ShardKey]
    seed: int
    workers: int = 3
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.tables = [marked(self.catalog) for _ in range(self.workers)]
        #: What each worker believes of the shards that it believes to own.
        self.beliefs: list[dict[ShardKey, int]] = [{} for _ in range(self.workers)]
        self.depth = 0

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.catalog.fates.clear()
        while self.catalog.under_way:
            self.catalog.arrive()

    def step(self) -> None:
        """One worker's batch; others may come between."""
        worker = self.rng.randrange(self.workers)
        if self.rng.random() < 0.35 or not self.beliefs[worker]:
            self.take(worker)
        if self.rng.random() < 0.3:
            self.catalog.arrive()
        owned = sorted(self.beliefs[worker])
        chosen = self.rng.sample(owned, self.rng.randint(1, len(owned)))
        batches = [self.cut(worker, shard) for shard in chosen]
        if self.rng.random() < 0.5:
            self.catalog.fates = [self.rng.choice(FATES) for _ in range(self.rng.randint(1, 4))]
        if self.depth == 0 and self.rng.random() < 0.4:
            self.catalog.before.append(self.between)
        try:
            found = commit(self.tables[worker], *batches, keep=has_row, draw=self.rng.random)
        except Exception as error:  # noqa: BLE001 - the shards' next owners ask for their marks
            self.happened[type(error).__name__] += 1
            for each in batches:
                self.beliefs[worker].pop(each.shard, None)
            return
        for each, outcome in zip(batches, found, strict=True):
            self.happened[outcome] += 1
            if outcome == "stands":
                self.beliefs[worker][each.shard] = each.to.sequence - BASE
            elif outcome == "lost":
                self.beliefs[worker].pop(each.shard, None)

    def between(self) -> None:
        """Another worker comes between within a commit."""
        self.depth += 1
        fates, self.catalog.fates = self.catalog.fates, []
        self.step()
        self.catalog.fates = fates
        self.depth -= 1

    def take(self, worker: int) -> None:
        """A shard changes hands; who had it may not know."""
        shard = self.rng.choice(self.shards)
        position = self.tables[worker].mark(shard)
        self.beliefs[worker][shard] = 0 if position is None else position.sequence - BASE

    def cut(self, worker: int, shard: ShardKey) -> ShardBatch:
        after = self.beliefs[worker][shard]
        return batch(shard, after, after + self.rng.randint(1, 6))

    def verdict(self) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
        """The rows that are in the table, and those that its marks say."""
        table = marked(self.catalog)
        wanted: Counter[tuple[str, int]] = Counter()
        for shard in self.shards:
            position = table.mark(shard)
            last = 0 if position is None else position.sequence - BASE
            wanted.update((shard.shard_id[-1], n) for n in range(1, last + 1) if has_row(n))
        return rows_in(self.catalog), wanted


def has_row(number: int) -> bool:
    """Whether the function makes a row of a record; of whole batches it makes none."""
    return number // 6 % 2 == 0
