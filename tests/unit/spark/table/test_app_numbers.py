"""Numbers of application ids: from the entries since the last look, and as delta-rs finds them."""

import json
import random
import shutil

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.marked_table import MarkedTable
from kcl_mld.spark.table.marks import guard_id
from kcl_mld.spark.table.snapshot import MOST_ENTRIES, NO_HOOKS, AppNumbers, entry_name
from kcl_mld.spark.table.store import open_store
from tests.unit.spark.table_kit import at, batch, shard, spark_schema

IDS = [f"app/{letter}" for letter in "abcdef"]


def entry(**numbers):
    lines = [{"commitInfo": {"operation": "WRITE"}}, {"add": {"path": "x", "txn": "no"}}]
    lines += [{"txn": {"appId": name, "version": number}} for name, number in numbers.items()]
    return "".join(json.dumps(line) + "\n" for line in lines)


class Log:
    """Entries by version, and how often somebody had to be asked."""

    def __init__(self, **first):
        self.entries = {0: entry(**first)}
        self.asked = []

    def ask(self, name):
        self.asked.append(name)


def known(log, numbers, *names):
    return {name: numbers.get(name, log.ask) for name in names}


def test_who_was_asked_once_is_not_asked_for_what_the_entries_tell():
    log = Log()
    numbers = AppNumbers(0)
    assert known(log, numbers, "a", "b") == {"a": None, "b": None}
    log.entries |= {1: entry(a=5), 2: entry(a=3, c=9)}
    numbers.advance(2, log.entries.get)
    assert known(log, numbers, "a", "b", "c") == {"a": 3, "b": None, "c": 9}
    numbers.advance(2, log.entries.get)
    assert known(log, numbers, "a", "b", "c") == {"a": 3, "b": None, "c": 9}
    assert log.asked == ["a", "b"]


@pytest.mark.parametrize(
    ("version", "texts"),
    [
        (2, {1: entry(a=5)}),  # the entry was cleaned up
        (2, {1: "{", 2: entry(a=6)}),
        (2, {1: '{"txn": {"appId": "a"}}', 2: entry(a=6)}),
        (2, {1: "[]", 2: entry(a=6)}),
        (2, {1: '{"txn": {"appId": "a", "version": null}}', 2: entry(a=6)}),
        (-1, {}),  # the table is another one
        (MOST_ENTRIES + 1, dict.fromkeys(range(1, MOST_ENTRIES + 2), entry(a=6))),
    ],
)
def test_what_the_entries_do_not_tell_is_asked_for_again(version, texts):
    log = Log()
    numbers = AppNumbers(0)
    known(log, numbers, "a")
    numbers.advance(version, texts.get)
    known(log, numbers, "a")
    assert log.asked == ["a", "a"]


def test_an_entry_that_cannot_be_read_leaves_nothing_behind():
    log = Log()
    numbers = AppNumbers(0)
    known(log, numbers, "a")

    def broken(version):
        raise OSError(version)

    with pytest.raises(OSError, match="1"):
        numbers.advance(1, broken)
    known(log, numbers, "a")
    assert log.asked == ["a", "a"]


@pytest.mark.parametrize("seed", range(8))
def test_each_snapshot_has_the_numbers_that_delta_rs_finds_in_that_version(tmp_path, seed):
    rng = random.Random(seed)
    log = DeltaLog(open_store(str(tmp_path)))
    log.create(spark_schema({"n": "long"}), [], {}, {IDS[0]: 1})
    for _ in range(30):
        wanted = rng.sample(IDS, rng.randrange(1, 4))
        with log.snapshot() as table:
            then = DeltaTable(tmp_path, version=table.version)
            names = rng.sample(IDS, rng.randrange(len(IDS)))
            assert {each: table.number_of(each) for each in names} == {
                each: then.transaction_version(each) for each in names
            }
            if rng.random() < 0.5:
                table.commit((), {each: rng.randrange(2**62) for each in wanted})
        if rng.random() < 0.5:  # somebody else's
            other = DeltaTable(tmp_path)
            numbers = [Transaction(each, rng.randrange(2**62)) for each in wanted]
            other.create_write_transaction(
                [],
                "append",
                other.schema(),
                commit_properties=CommitProperties(app_transactions=numbers),
                post_commithook_properties=NO_HOOKS,
            )
        if rng.random() < 0.1:
            newest = DeltaTable(tmp_path)
            newest.create_checkpoint()
            for version in range(rng.randrange(newest.version() + 1)):
                (tmp_path / entry_name(version)).unlink(missing_ok=True)


def table_at(place):
    """A worker's log and table."""
    log = DeltaLog(open_store(str(place)))
    return log, MarkedTable(log, str(place), "app", "0")


def exchange(place):
    """The table is deleted; another worker makes it anew, and comes as far as the first one."""
    shutil.rmtree(place)
    place.mkdir()
    _, other = table_at(place)
    other.create(spark_schema({"n": "long"}), [])
    other.look()
    for each in (batch(shard(), 0, 33), batch(shard(1), 0, 5), batch(shard(1), 5, 12)):
        other.commit([], [each])


def a_table_at_20(place):
    place.mkdir()
    log, table = table_at(place)
    table.create(spark_schema({"n": "long"}), [])
    table.look()
    for each in (batch(shard(), 0, 10), batch(shard(), 10, 20)):
        assert set(table.commit([], [each]).values()) == {CommitOutcome.STANDS}
    return log, table


def require_fence(place, table):
    with pytest.raises(SinkRefused, match="it is another table now"):
        table.commit([], [batch(shard(), 20, 30)])
    assert table_at(place)[1].mark(shard()) == at(33)


def test_a_table_that_was_exchanged_while_a_snapshot_was_held_is_no_table_of_its_numbers(tmp_path):
    place = tmp_path / "table"
    log, table = a_table_at_20(place)
    with log.snapshot() as held:
        assert held.number_of(guard_id(shard())) is not None
        exchange(place)
    require_fence(place, table)


@pytest.mark.parametrize("look", [1, 2, 3])
def test_a_table_that_is_exchanged_while_a_snapshot_is_renewed_is_no_table_of_its_numbers(
    tmp_path, look
):
    place = tmp_path / "table"
    log, table = a_table_at_20(place)
    with log.snapshot() as known:
        assert known.number_of(guard_id(shard())) is not None
    stamp, looks = log._entry, iter(range(1, 100))

    def exchanged_after(version):
        found = stamp(version)
        if next(looks) == look:
            log._entry = stamp
            exchange(place)
        return found

    log._entry = exchanged_after
    if look < 3:
        require_fence(place, table)
        return
    with log.snapshot() as late:  # after the last look: whoever comes next opens it anew
        assert late is not None
    require_fence(place, table)


def test_whether_readers_still_find_a_number_is_asked_of_the_log(tmp_path):
    """A number that is known would hide that a log checkpoint has dropped it."""
    log = DeltaLog(open_store(str(tmp_path)))
    log.create(spark_schema({"n": "long"}), [], {}, {IDS[0]: 1})
    with log.snapshot() as table:
        table.numbers.get(IDS[1], lambda _: 5)
        assert table.number_of(IDS[1]) == 5
        assert table.still_has(IDS[0])
        assert not table.still_has(IDS[1])
