"""Upserts into real tables by delta-rs: fence, conflicts, what is not changed, what is refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.sinks.delta import DeltaSink
from kcl_mld.spark.sinks.merge import MergeSink
from kcl_mld.spark.table.changes import newer, quoted
from kcl_mld.spark.table.snapshot import Snapshot
from tests.unit.spark.table_kit import BASE, Frame, at, batch, log_entries, rows_in, shard

ROOT = Path(__file__).resolve().parents[4]
COLUMNS = {"key": "string", "shard_id": "string", "n": "long", "sequence_number": "string"}


class Keyed(Frame):
    """Rows of which Spark has already left one a key."""


def keyed(*batches, columns=COLUMNS, keys=5, **more):
    """The last row of each of some keys a shard, as Spark stages them."""
    last = {}
    for each in batches:
        for row in each.rows:
            n = row.position.sequence - BASE
            key = f"{each.shard.shard_id[-1]}/{n % keys}"
            last[key] = {
                "key": key, "shard_id": each.shard.shard_id, "n": n,
                "sequence_number": str(row.position.sequence), **more,
            }  # fmt: skip
    return Keyed(list(last.values()), columns)


def open_merge(path, application="app", **properties):
    more = {"spark." + name.replace("__", "."): text for name, text in properties.items()}
    given = {"spark.sink": "merge", "spark.sink.path": str(path), "spark.sink.key": "key"}
    sink = MergeSink(read_properties(given | more), application)
    sink.prepare(None)
    return sink


def stage(sink, frame, *batches):
    """As ``write``, without the plan that leaves one row a key."""
    for each in batches:
        sink.mark(each.shard)
    return DeltaSink.write(sink, frame, batches)


def merge(sink, *batches, frame=None, **more):
    staged = stage(sink, frame or keyed(*batches, **more), *batches)
    try:
        outcomes = sink.commit_all(staged, batches)
    finally:
        sink.discard(staged)
    return [str(outcomes[each.shard]) for each in batches]


def table(path):
    rows = DeltaTable(path).to_pyarrow_table().to_pylist()
    found = {row["key"]: row["n"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def last(digit, to, keys=5):
    return {f"{digit}/{n % keys}": n for n in range(max(1, to - keys + 1), to + 1)}


def test_rows_and_marks_are_one_commit_and_nothing_staged_is_left(tmp_path):
    path = tmp_path / "t"
    sink = open_merge(path)
    assert merge(sink, batch(shard(), 0, 8), batch(shard(1), 0, 3)) == ["stands", "stands"]
    assert merge(sink, batch(shard(), 8, 9)) == ["stands"]
    assert table(path) == last(0, 9) | last(1, 3)
    again = open_merge(path)
    assert again.mark(shard()) == at(9)
    assert again.mark(shard(1)) == at(3)
    operations = [
        each["commitInfo"]["operation"] for each in log_entries(path) if "commitInfo" in each
    ]
    assert operations.count("MERGE") == 2
    assert not list(path.glob("kcl-mld-*/job-*"))
    assert not list(path.glob("kcl-mld-*/pending-*"))


def test_a_batch_that_changes_no_row_moves_the_mark(tmp_path):
    """delta-rs commits no merge without effect, and would have left the mark where it was."""
    path = tmp_path / "t"
    sink = open_merge(path, sink__mode="insert")
    merge(sink, batch(shard(), 0, 5))
    assert merge(sink, batch(shard(), 5, 10)) == ["stands"]
    assert table(path) == last(0, 5)
    assert merge(sink, batch(shard(), 10, 12), frame=Keyed([], COLUMNS)) == ["stands"]
    assert open_merge(path).mark(shard()) == at(12)


def test_a_row_never_goes_back_to_an_older_record_of_its_shard(tmp_path):
    path = tmp_path / "t"
    merge(open_merge(path), batch(shard(), 0, 10))
    replayed = open_merge(path, sink__epoch="again")
    assert merge(replayed, batch(shard(epoch="again"), 0, 7)) == ["stands"]
    assert table(path) == last(0, 10)
    merge(replayed, batch(shard(epoch="again"), 7, 12))
    assert table(path) == last(0, 12)


def test_without_the_sequence_number_the_last_commit_wins(tmp_path):
    path = tmp_path / "t"
    columns = {name: kind for name, kind in COLUMNS.items() if name != "sequence_number"}
    for epoch, to in (("0", 10), ("again", 7)):
        one = batch(shard(epoch=epoch), 0, to)
        merge(open_merge(path, sink__epoch=epoch), one, frame=keyed(one, columns=columns))
    assert table(path) == last(0, 7)


def test_of_two_merges_that_began_on_one_version_the_second_is_made_anew_on_the_first(tmp_path):
    """Both insert the same new key; delta-rs tries no commit of ours again by itself."""
    path, seen = tmp_path / "t", []
    merge(open_merge(path), batch(shard(9), 0, 1))
    one, two = open_merge(path), open_merge(path)
    mine, theirs = batch(shard(), 0, 4), batch(shard(1), 0, 4)
    both = {"key": "both", "shard_id": "", "n": 1, "sequence_number": None}
    staged = stage(one, Keyed([both], COLUMNS), mine)
    apply = one._table._change.apply

    def late(snapshot, files, numbers):
        seen.append(snapshot.version)
        if len(seen) == 1:
            assert merge(two, theirs, frame=Keyed([both | {"n": 2}], COLUMNS)) == ["stands"]
        apply(snapshot, files, numbers)

    one._table._change.apply = late
    assert one.commit_all(staged, [mine]) == {shard(): CommitOutcome.STANDS}
    assert seen == [1, 2]
    assert table(path)["both"] == 1
    assert (open_merge(path).mark(shard()), open_merge(path).mark(shard(1))) == (at(4), at(4))


def test_two_workers_behind_one_position_leave_one_copy(tmp_path):
    path = tmp_path / "t"
    one, two = open_merge(path), open_merge(path)
    merge(one, batch(shard(), 0, 3))
    late = batch(shard(), 3, 9)
    staged = stage(two, keyed(late), late)
    merge(one, batch(shard(), 3, 5))
    assert two.commit_all(staged, [late]) == {shard(): CommitOutcome.LOST}
    two.discard(staged)
    assert table(path) == last(0, 5)
    assert open_merge(path).mark(shard()) == at(5)
    assert not list(path.glob("kcl-mld-*/job-*"))


@pytest.mark.parametrize("key", ["both", "other"])
def test_somebody_elses_append_in_between_is_compared_with(tmp_path, key):
    path, seen = tmp_path / "t", []
    merge(open_merge(path), batch(shard(9), 0, 1))
    sink, one = open_merge(path), batch(shard(), 0, 2)
    row = {"key": "both", "shard_id": "", "n": 1, "sequence_number": None}
    staged = stage(sink, Keyed([row], COLUMNS), one)
    apply = sink._table._change.apply

    def late(snapshot, files, numbers):
        seen.append(snapshot.version)
        if len(seen) == 1:
            mine = pa.Table.from_pylist(
                [row | {"key": key, "n": 7}], DeltaTable(path).schema().to_arrow()
            )
            write_deltalake(path, mine, mode="append")
        apply(snapshot, files, numbers)

    sink._table._change.apply = late
    assert sink.commit_all(staged, [one]) == {shard(): CommitOutcome.STANDS}
    assert table(path)["both"] == 1
    assert len(seen) <= 2


def test_a_merge_that_stood_although_it_raised_is_not_repeated(tmp_path, monkeypatch):
    path, made = tmp_path / "t", []
    sink = open_merge(path)
    merge(sink, batch(shard(), 0, 2))
    whole = Snapshot.merge

    def raises(self, rows, **more):
        whole(self, rows, **more)
        made.append(1)
        raise OSError("the answer was lost")

    monkeypatch.setattr(Snapshot, "merge", raises)
    assert merge(sink, batch(shard(), 2, 6)) == ["stands"]
    assert made == [1]
    assert table(path) == last(0, 6)


def test_a_merge_that_always_fails_says_why(tmp_path, monkeypatch):
    path = tmp_path / "t"
    sink = open_merge(path)
    merge(sink, batch(shard(), 0, 2))
    sink._table._pause = lambda _: None

    def raises(self, rows, **more):
        raise OSError("no room")

    monkeypatch.setattr(Snapshot, "merge", raises)
    with pytest.raises(OSError, match="no room"):
        merge(sink, batch(shard(), 2, 6))
    assert table(path) == last(0, 2)
    assert not list(path.glob("kcl-mld-*/job-*")), "no log names what was staged"


def test_names_and_types_and_partitions_come_back_as_they_were(tmp_path):
    path = tmp_path / "t"
    columns = {"key": "string", 'Kä "s`.x': "long", "day": "string", "UPPER": "double"}
    rows = [
        {"key": str(n), 'Kä "s`.x': n, "day": None if n == 2 else f"a/b={n} %41", "UPPER": 0.5}
        for n in range(3)
    ]
    sink = open_merge(path, sink__partitionBy="day")
    merge(sink, batch(shard(), 0, 3), frame=Keyed(rows, columns))
    changed = rows[1] | {'Kä "s`.x': 70, "UPPER": None}
    merge(sink, batch(shard(), 3, 4), frame=Keyed([changed], columns))
    found = DeltaTable(path).to_pyarrow_table().sort_by("key").to_pylist()
    assert found == [rows[0], changed, rows[2]]
    assert DeltaTable(path).metadata().partition_columns == ["day"]


def test_columns_that_rows_lack_stay_and_new_ones_are_let_in_on_demand(tmp_path):
    path = tmp_path / "t"
    merge(open_merge(path), batch(shard(), 0, 2))
    fewer = {"key": "string", "n": "long"}
    merge(open_merge(path), batch(shard(), 2, 3), frame=Keyed([{"key": "0/1", "n": 9}], fewer))
    more = {"key": "string", "fee": "double"}
    frame = Keyed([{"key": "0/1", "fee": 1.5}], more)
    with pytest.raises(BatchFailed, match=r"no column fee.*spark\.sink\.schema=addColumns"):
        merge(open_merge(path), batch(shard(), 3, 4), frame=frame)
    for option in ({"sink__schema": "addColumns"}, {"sink__options__mergeSchema": "true"}):
        to = 5 if "sink__schema" in option else 6
        merge(open_merge(path, **option), batch(shard(), to - 2 if to == 5 else 5, to), frame=frame)
    found = {row["key"]: row for row in DeltaTable(path).to_pyarrow_table().to_pylist()}
    assert found["0/1"] == {
        "key": "0/1", "shard_id": shard().shard_id, "n": 9, "fee": 1.5,
        "sequence_number": str(BASE + 1),
    }  # fmt: skip


def test_a_table_without_the_key_is_refused_at_the_start(tmp_path):
    merge(open_merge(tmp_path / "t"), batch(shard(), 0, 2))
    with pytest.raises(SinkRefused, match=r"no column id, x of spark\.sink\.key; it has key, "):
        open_merge(tmp_path / "t", sink__key="id,x")


def test_a_table_that_only_grows_is_told(tmp_path):
    path = tmp_path / "t"
    sink = open_merge(path)
    merge(sink, batch(shard(), 0, 2))
    DeltaTable(path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(SinkRefused, match="may only be appended to"):
        merge(open_merge(path), batch(shard(), 2, 9))


def test_a_function_that_returns_no_key_is_told(tmp_path):
    sink, one = open_merge(tmp_path / "t"), batch(shard(), 0, 2)
    frame = Keyed([], COLUMNS)
    frame.columns = ["n"]
    with pytest.raises(BatchFailed, match=r"lack key of spark\.sink\.key; they have n"):
        sink.write(frame, [one])


def test_the_condition_of_an_update_needs_the_number_as_text_on_both_sides():
    def fields(**types):
        return [{"name": name, "type": kind} for name, kind in types.items()]

    assert newer(fields(sequence_number="string"), ["key"]) is None
    assert newer(fields(sequence_number="long"), ["sequence_number"]) is None
    full = {"sequence_number": "string", "sub_sequence_number": "long", "shard_id": "string"}
    text = newer(fields(**full), list(full))
    assert "s.sub_sequence_number >= t.sub_sequence_number" in text
    assert "t.shard_id <> s.shard_id" in text
    assert "shard_id" not in newer(fields(**full), ["sequence_number", "sub_sequence_number"])
    assert quoted('a"b') == '"a""b"'


def test_what_a_merge_wrote_is_synced_before_it_is_said_to_stand(tmp_path, monkeypatch):
    path, synced = tmp_path / "t", set()
    sink, fsync = open_merge(path), os.fsync

    def note(descriptor):
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    assert merge(sink, batch(shard(), 0, 2)) == ["stands"]
    files = {str(path / each["add"]["path"]) for each in log_entries(path) if "add" in each}
    assert files
    assert files <= synced
    assert str(path) in synced


WORKER = """
import json, sys, time
from tests.unit.spark.table.test_upsert import BASE, batch, keyed, merge, open_merge, shard, stage
path, digit, rounds, keys = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
sink, key = open_merge(path), shard(digit)
tries = 0
apply = sink._table._change.apply
def counted(*args):
    global tries
    tries += 1
    apply(*args)
sink._table._change.apply = counted
sys.stdin.readline()
began = time.monotonic()
mark, failed = sink.mark(key), 0
done = 0 if mark is None else (mark.sequence - BASE) // 3
while done < rounds:
    one = batch(key, done * 3, done * 3 + 3)
    try:
        merge(sink, one, frame=keyed(one, keys=keys))
    except Exception as error:
        failed += 1
        continue
    done += 1
    print(done, flush=True)
print(json.dumps({"tries": tries, "failed": failed, "s": time.monotonic() - began}), flush=True)
"""


def start(path, digit, rounds, keys=7):
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(path), str(digit), str(rounds), str(keys)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.process
def test_two_processes_that_merge_at_once_lose_and_double_nothing(tmp_path):
    path = tmp_path / "t"
    merge(open_merge(path), batch(shard(9), 0, 1))
    workers = [start(path, digit, 8) for digit in range(2)]
    for each in workers:
        each.stdin.write("go\n")
        each.stdin.flush()
    said = [json.loads(each.communicate(timeout=120)[0].splitlines()[-1]) for each in workers]
    assert table(path) == last(0, 24, 7) | last(1, 24, 7) | {"9/1": 1}
    assert sum(each["tries"] for each in said) >= 16
    made = Counter(
        each["commitInfo"]["operation"] for each in log_entries(path) if "commitInfo" in each
    )
    assert made["MERGE"] == 17


@pytest.mark.process
def test_kill_9_in_the_middle_of_merges_loses_and_doubles_nothing(tmp_path):
    path, killed = tmp_path / "t", 0
    merge(open_merge(path), batch(shard(9), 0, 1))
    for rounds in (4, 8, 12):
        worker = start(path, 0, 12)
        worker.stdin.write("go\n")
        worker.stdin.flush()
        for line in worker.stdout:
            if line.startswith(f"{rounds}\n") and rounds < 12:
                worker.kill()
                killed += 1
                break
        worker.communicate(timeout=120)
    assert killed == 2
    assert table(path) == last(0, 36, 7) | {"9/1": 1}
    assert rows_in(path) == Counter({("0", n): 1 for n in range(30, 37)} | {("9", 1): 1})
