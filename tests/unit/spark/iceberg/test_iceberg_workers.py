"""Several workers of one table at the same time, each with a catalog of its own."""

from __future__ import annotations

import threading

import pytest

from kcl_mld.spark.iceberg.commit import MOST_OVERTAKEN, TableCommit
from tests.unit.spark.iceberg_kit import arrow_of, catalog_in, make_table, marked, rows_in
from tests.unit.spark.table_kit import at, batch, expected, shard

COMMITS = 6


@pytest.mark.parametrize("workers", [2, 4])
def test_workers_of_disjoint_shards_take_turns_and_none_waits_for_ever(tmp_path, workers):
    first = catalog_in(tmp_path / "t")
    make_table(first)
    overtaken: dict[int, list[int]] = {n: [] for n in range(workers)}
    at_once = threading.Barrier(workers)
    failures = []

    def work(number):
        catalog = catalog_in(tmp_path / "t")
        try:
            table = marked(catalog)
            at_once.wait(60)
            for n in range(COMMITS):
                one = batch(shard(number), n * 3, n * 3 + 3)
                made = TableCommit(table, [one], lambda _, one=one: arrow_of(one))
                assert set(map(str, made.run().values())) == {"stands"}
                overtaken[number].append(made.overtaken)
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)
        finally:
            catalog.close()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(workers)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not failures
    assert rows_in(first) == expected(**{f"s{n}": COMMITS * 3 for n in range(workers)})
    assert [marked(first).mark(shard(n)) for n in range(workers)] == [at(COMMITS * 3)] * workers
    counts = [count for each in overtaken.values() for count in each]
    assert max(counts) < MOST_OVERTAKEN
    print(f"{workers} workers: refused {sum(counts)} times, the slowest {max(counts)} in a row")
    data = list((tmp_path / "t" / "ns" / "rows" / "data").rglob("*.parquet"))
    assert len(data) == workers * COMMITS
    first.close()
