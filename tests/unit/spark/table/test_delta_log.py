"""How long an object of a table is used: it becomes slower with each entry that it takes in."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake import (
    CommitProperties,
    DeltaTable,
    Field as DeltaField,
    Transaction,
    write_deltalake,
)
from deltalake.exceptions import DeltaError

from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.table import delta_log
from kcl_mld.spark.table.changes import Append
from kcl_mld.spark.table.data_files import DataFile
from kcl_mld.spark.table.delta_log import CHECKPOINT_EVERY, DeltaLog
from kcl_mld.spark.table.snapshot import NO_HOOKS
from kcl_mld.spark.table.store import open_store
from tests.unit.spark.table_kit import (
    batch,
    expected,
    frame,
    open_sink,
    rows_in,
    shard,
    spark_schema,
    write,
)


@pytest.fixture
def log(tmp_path):
    found = DeltaLog(open_store(str(tmp_path)))
    found.create(spark_schema({"n": "long"}), [], {}, {})
    assert not found.keep_short(0)  # knows since when it is there
    return found


def commit(log, number):
    """One commit, and the object that it was made on."""
    with log.snapshot() as table:
        table.commit([], {"shard": number})
        return table.table


def shorten(log):
    assert log.keep_short(CHECKPOINT_EVERY)


def test_an_object_is_used_again_and_brought_up_to_date(log, tmp_path):
    first = commit(log, 1)
    other = DeltaTable(tmp_path)
    other.alter.set_table_properties(
        {"some.property": "1"},
        raise_if_not_exists=False,
        commit_properties=CommitProperties(app_transactions=[Transaction("shard", 7)]),
        post_commithook_properties=NO_HOOKS,
    )
    with log.snapshot() as table:
        assert table.table is first
        assert table.number_of("shard") == 7


def test_after_a_log_checkpoint_the_table_is_opened_anew_once(log):
    first = commit(log, 1)
    shorten(log)
    second = commit(log, 2)
    assert second is not first
    assert commit(log, 3) is second
    with log.snapshot() as table:
        assert table.number_of("shard") == 3


def test_one_that_was_in_use_meanwhile_is_opened_anew_as_well(log):
    with log.snapshot() as held:
        commit(log, 1)
        shorten(log)
    with log.snapshot() as table:
        assert table.table is not held.table


def test_one_that_was_opened_at_the_log_checkpoint_is_kept(log):
    commit(log, 1)
    shorten(log)
    with log.snapshot() as held:
        assert held.version == 1
    with log.snapshot() as table:
        assert table.table is held.table


def test_of_two_who_create_the_table_one_does(tmp_path):
    """delta-rs alone would write a second beginning behind the first, with another schema."""
    for number in range(10):
        place = tmp_path / str(number)
        place.mkdir()
        logs = [DeltaLog(open_store(str(place))) for _ in range(2)]
        together = threading.Barrier(2)

        def create(log, name, together=together):
            together.wait()
            try:
                log.create(spark_schema({name: "long"}), [], {}, {name: 1})
            except DeltaError:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            created = list(pool.map(create, logs, "ab"))
        entries = (place / "_delta_log").glob("*.json")
        assert sum("metaData" in each.read_text() for each in entries) == 1
        assert sorted(created) == [False, True]


def test_commits_whose_entries_are_gone_may_have_been_a_restore_and_are_told(log, tmp_path, caplog):
    for number in range(1, 5):
        commit(log, number)
    with log.snapshot() as table:
        assert not table.restored_after(0)
        assert not caplog.messages
        for version in (2, 3):
            (tmp_path / "_delta_log" / f"{version:020}.json").unlink()
        assert not table.restored_after(0)
    assert "no longer has the commits 2 to 3; if one of them was a RESTORE" in caplog.text


def test_the_log_of_a_new_table_is_kept_for_three_days_unless_its_owner_wants_something_else(
    tmp_path,
):
    name = "delta.logRetentionDuration"
    for number, (wanted, found) in enumerate([({}, "interval 3 days"), ({name: "x"}, "x")]):
        place = tmp_path / str(number)
        DeltaLog(open_store(str(place))).create(spark_schema({"n": "long"}), [], wanted, {})
        assert DeltaTable(place).metadata().configuration == {name: found}


def test_who_has_committed_sees_it_in_the_entry(log, tmp_path):
    commit(log, 1)
    assert log.tells(1, {"shard": 1})
    assert not log.tells(1, {"shard": 2})
    assert not log.tells(1, {"shard": 1, "another": 1})
    assert not log.tells(0, {"shard": 1})
    assert not log.tells(2, {"shard": 1})
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("{")
    assert not log.tells(1, {"shard": 1})


@pytest.fixture
def looks(monkeypatch):
    """How often tables were brought up to date, each of which lists all entries of the log."""
    found = []
    real = DeltaTable.update_incremental
    monkeypatch.setattr(DeltaTable, "update_incremental", lambda t: (found.append(t), real(t))[1])
    return found


def test_a_batch_looks_at_the_table_once(tmp_path, looks):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 3))
    for number in range(3, 9):
        one = batch(shard(), number, number + 1)
        staged = sink.write(frame(one), [one])
        looks.clear()
        assert set(sink.commit_all(staged, [one]).values()) == {CommitOutcome.STANDS}
        assert len(looks) == 1
    assert rows_in(tmp_path) == expected(s0=9)


def test_a_commit_behind_one_of_somebody_else_is_looked_for(tmp_path, looks, monkeypatch):
    sink, other = open_sink(tmp_path), open_sink(tmp_path)
    write(sink, batch(shard(), 0, 3))
    write(other, batch(shard(1), 0, 2))
    apply = Append.apply

    def late(change, table, files, transactions):
        monkeypatch.setattr(Append, "apply", apply)
        write(other, batch(shard(1), 2, 4))
        looks.clear()
        apply(change, table, files, transactions)

    monkeypatch.setattr(Append, "apply", late)
    assert write(sink, batch(shard(), 3, 5)) == ["stands"]
    assert len(looks) == 1
    assert rows_in(tmp_path) == expected(s0=5, s1=4)


def test_files_that_fit_what_was_seen_before_must_fit_what_is_there_at_the_commit(tmp_path):
    sink = open_sink(tmp_path)
    write(sink, batch(shard(), 0, 3))
    one = batch(shard(), 3, 5)
    changed = DeltaTable(tmp_path)
    changed.alter.add_columns([DeltaField("more", "string", nullable=False)])
    staged = sink.write(frame(one), [one])
    with pytest.raises(BatchFailed, match="do not fit the table"):
        sink.commit_all(staged, [one])


def test_very_many_files_are_told_once_and_again_when_they_are_more(log, monkeypatch, caplog):
    monkeypatch.setattr(delta_log, "_MANY_FILES", 3)
    told = []
    for count in (2, 2, 1, 1, 3):
        files = [DataFile(f"{len(told)}-{n}.parquet", 1, 1, 1, {}, [], []) for n in range(count)]
        with log.snapshot() as table:
            table.commit(files, {})
        shorten_again(log)
        told.append(len(caplog.messages))
        caplog.clear()
    assert told == [0, 1, 0, 1, 1]


def shorten_again(log):
    log._checkpointed = 0
    shorten(log)


def test_a_column_that_was_taken_out_since_files_were_examined_is_added_again(tmp_path):
    sink = open_sink(tmp_path, sink__schema="addColumns")
    columns = {"shard_id": "string", "n": "long", "x": "string"}
    first, second = batch(shard(), 0, 3), batch(shard(), 3, 5)
    staged = sink.write(frame(first, columns=columns), [first])
    assert set(sink.commit_all(staged, [first]).values()) == {CommitOutcome.STANDS}
    with contextlib.ExitStack() as shards:  # each of several shards has asked for its mark
        for _ in range(4):
            shards.enter_context(sink._log.snapshot())
    rows = DeltaTable(tmp_path).to_pyarrow_table().drop_columns(["x"])
    write_deltalake(tmp_path, rows, mode="overwrite", schema_mode="overwrite")
    staged = sink.write(frame(second, columns=columns), [second])
    assert set(sink.commit_all(staged, [second]).values()) == {CommitOutcome.STANDS}
    assert [each.name for each in DeltaTable(tmp_path).schema().fields] == ["shard_id", "n", "x"]
    assert rows_in(tmp_path) == expected(s0=5)
