"""Numbers of application ids: from the entries since the last look, and as delta-rs finds them."""

import json
import random

import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from mld.spark.table.app_numbers import MOST_ENTRIES, AppNumbers
from mld.spark.table.delta_log import NO_HOOKS, DeltaLog, entry_name
from mld.spark.table.store import open_store
from tests.unit.spark.table_kit import spark_schema

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


def test_whether_readers_still_find_a_number_is_asked_of_the_log(tmp_path):
    """A number that is known would hide that a log checkpoint has dropped it."""
    log = DeltaLog(open_store(str(tmp_path)))
    log.create(spark_schema({"n": "long"}), [], {}, {IDS[0]: 1})
    with log.snapshot() as table:
        table.numbers.get(IDS[1], lambda _: 5)
        assert table.number_of(IDS[1]) == 5
        assert table.still_has(IDS[0])
        assert not table.still_has(IDS[1])
