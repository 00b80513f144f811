"""Records that are set aside are in their table once: real Delta tables, without Spark."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace

import pytest
from deltalake import DeltaTable

from kcl_mld.spark.errors import SinkRefused, SinkUnavailable
from kcl_mld.spark.model import DeadLetter, Row
from kcl_mld.spark.table import disk
from kcl_mld.spark.table.dead_letters import DeadLetters
from kcl_mld.spark.table.snapshot import Snapshot
from tests.unit.spark.table_kit import BASE, at, shard


def letter(number, key=None, error="KeyError: x"):
    return DeadLetter(
        key or shard(), Row(at(number), "k", b"%d" % number, 1_700_000_000_000), error
    )


def table_at(path, epoch="0"):
    letters = DeadLetters(str(path), "app", epoch)
    letters.prepare()
    return letters


def found(path):
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    return Counter((row["shard_id"][-1], int(row["sequence_number"]) - BASE) for row in rows)


def test_a_record_is_kept_as_it_came_with_its_place_and_the_error(tmp_path):
    table_at(tmp_path).keep([letter(7)])
    (row,) = DeltaTable(tmp_path).to_pyarrow_table().to_pylist()
    assert row.pop("approximate_arrival_timestamp").timestamp() == 1_700_000_000
    assert row == {
        "data": b"7",
        "partition_key": "k",
        "sequence_number": str(BASE + 7),
        "sub_sequence_number": 0,
        "shard_id": shard().shard_id,
        "stream_name": "flights",
        "epoch": "0",
        "error": "KeyError: x",
    }


def test_a_record_that_comes_again_in_another_batch_is_there_once(tmp_path):
    """After a crash, or because the commit of its batch had no answer."""
    table_at(tmp_path).keep([letter(3), letter(5)])
    again = table_at(tmp_path)
    again.keep([letter(5), letter(9)])
    again.keep([letter(3), letter(5), letter(9)])
    assert found(tmp_path) == Counter({("0", 3): 1, ("0", 5): 1, ("0", 9): 1})
    assert DeltaTable(tmp_path).version() == 2  # nothing new is no commit


def test_a_record_behind_the_mark_that_was_not_kept_before_is_added(tmp_path):
    """Of a function that does not always fail of the same records: nothing may be lost."""
    letters = table_at(tmp_path)
    letters.keep([letter(9)])
    letters.keep([letter(4), letter(9)])
    letters.keep([letter(11)])
    assert found(tmp_path) == Counter({("0", 9): 1, ("0", 4): 1, ("0", 11): 1})


def test_shards_and_records_of_one_aggregate_are_told_apart(tmp_path):
    part = letter(3)
    other = replace(part, row=replace(part.row, position=part.row.position._replace(sub=1)))
    table_at(tmp_path).keep([part, letter(3, shard(1))])
    table_at(tmp_path).keep([part, other, letter(3, shard(1))])
    assert found(tmp_path) == Counter({("0", 3): 2, ("1", 3): 1})


def test_a_new_epoch_keeps_its_own(tmp_path):
    table_at(tmp_path).keep([letter(3)])
    table_at(tmp_path, "2").keep([letter(3, shard(epoch="2"))])
    assert found(tmp_path) == Counter({("0", 3): 2})


def test_two_hosts_that_both_believe_to_own_a_shard_keep_a_record_once(tmp_path):
    hosts = [table_at(tmp_path) for _ in range(3)]
    start = threading.Barrier(len(hosts))

    def work(host):
        start.wait()
        for number in (2, 4, 6):
            host.keep([letter(number), letter(number + 1)])

    threads = [threading.Thread(target=work, args=(host,)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(tmp_path) == Counter({("0", n): 1 for n in range(2, 8)})


def test_a_host_that_another_one_always_comes_before_says_so(tmp_path, monkeypatch):
    one, two = table_at(tmp_path), table_at(tmp_path)
    numbers = iter(range(100, 200))
    mark = one._table.mark

    def mark_and_lose(key):
        found = mark(key)
        two.keep([letter(next(numbers))])
        return found

    monkeypatch.setattr(one._table, "mark", mark_and_lose)
    with pytest.raises(SinkUnavailable, match="other workers write the same records"):
        one.keep([letter(3)])
    assert ("0", 3) not in found(tmp_path)


def test_what_a_commit_that_failed_has_staged_is_swept(tmp_path, monkeypatch):
    letters = table_at(tmp_path)

    def fail(*_):
        raise OSError("a full disk")

    monkeypatch.setattr(disk.os, "fsync", fail)
    with pytest.raises(OSError, match="a full disk"):
        letters.keep([letter(3)])
    assert list(tmp_path.glob("kcl-mld-*/job-*")) == []
    monkeypatch.undo()
    letters.keep([letter(3)])
    assert found(tmp_path) == Counter({("0", 3): 1})


@pytest.mark.parametrize("place", ["gs://bucket/letters", "/proc/letters"])
def test_a_place_that_cannot_be_written_is_told_by_its_key(place):
    with pytest.raises(SinkRefused, match=r"spark\.function\.deadletter\.path="):
        table_at(place)


def test_a_table_of_other_columns_is_refused(tmp_path):
    from tests.unit.spark.table_kit import batch, open_sink, write  # noqa: PLC0415

    write(open_sink(tmp_path), batch(shard(), 0, 2))
    with pytest.raises(SinkRefused, match="a table of other columns"):
        table_at(tmp_path)


def test_letters_that_others_have_built_on_are_not_discarded(tmp_path, monkeypatch):
    letters, real = table_at(tmp_path), Snapshot.commit

    def commit_and_lose_the_answer(self, *args):
        monkeypatch.setattr(Snapshot, "commit", real)
        real(self, *args)
        table_at(tmp_path).keep([letter(5)])  # by the shard's next owner
        raise OSError("no answer")

    monkeypatch.setattr(Snapshot, "commit", commit_and_lose_the_answer)
    letters.keep([letter(3)])
    assert found(tmp_path) == Counter({("0", 3): 1, ("0", 5): 1})
