"""How long an object of a table is used: it becomes slower with each entry that it takes in."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import DeltaError

from mld.spark.table.delta_log import CHECKPOINT_EVERY, DeltaLog
from mld.spark.table.snapshot import NO_HOOKS
from mld.spark.table.store import open_store
from tests.unit.spark.table_kit import spark_schema


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
