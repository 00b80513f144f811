"""Workers on the stream of a table of DynamoDB Local, whose shards are replaced on command."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from itertools import chain
from zlib import crc32

import pytest

from kcl_mld.config.stream import TableStreamArn
from tests.kclpy_cache import kclpy
from tests.process.daemon import JOURNALING, journals, wait_until
from tests.process.table_streams import entries, keys_of, records_of, wait_for_records


def test_records_come_in_order_through_shards_that_are_replaced(new_table):
    table = new_table("Replaced")
    table.put(3)
    run = table.app.start(executable=(sys.executable, str(JOURNALING), "3", "integer"))
    wait_for_records(run, 3)
    for expected in (5, 7):
        table.control(ACTION="ROLLOVER")
        table.put(2)
        wait_for_records(run, expected)
    first, second, last = table.shards()
    wait_until(
        lambda: table.checkpoints().get(last, "").isdecimal(),
        "a checkpoint of the last shard",
    )
    assert run.stop() == 0
    assert keys_of(run) == list(range(7))
    numbers = table.numbers()
    assert [number for number, *_ in records_of(run)] == [*chain.from_iterable(numbers)]
    assert [key for _, _, key, _ in records_of(run)] == [*chain.from_iterable(numbers)]
    # The program checkpoints integers; the rows have the numbers of the stream.
    assert numbers[-1][-1].startswith("00")
    assert table.checkpoints() == {
        first: "SHARD_END",
        second: "SHARD_END",
        last: numbers[-1][-1],
    }
    rows = table.app.items()
    assert rows[first]["childShardIds"] == [second]
    assert rows[last]["parentShardId"] == [second]
    assert (rows[last]["startingHashKey"], rows[last]["endingHashKey"]) == ("0", "1")
    assert len(entries(run, "initialize")) == len(entries(run, "EOF")) == 3

    table.put(1)
    again = table.app.start(executable=(sys.executable, str(JOURNALING), "3"), worker="w2")
    wait_until(lambda: records_of(again), "what came meanwhile")
    assert keys_of(again) == [7]
    assert again.stop() == 0


def test_shards_whose_records_expired_end_and_their_children_are_read(new_table):
    table = new_table("Expired")
    table.put(2)
    table.control(ACTION="ROLLOVER")
    table.control(ACTION="DILATE_TIME", HOURS="60")
    table.put(2)
    run = table.app.start(executable=(sys.executable, str(JOURNALING), "3"))
    wait_for_records(run, 2)
    assert keys_of(run) == [2, 3]
    expired = table.shards()[:-1]
    assert len(expired) == 2
    wait_until(
        lambda: all(table.checkpoints().get(one) == "SHARD_END" for one in expired),
        "the end of the shards that expired",
    )
    assert run.stop() == 0


def test_a_checkpoint_whose_records_expired_is_an_error_with_the_first_record_that_is_left(
    new_table,
):
    table = new_table("Trimmed")
    table.put(2)
    run = table.app.start(executable=(sys.executable, str(JOURNALING), "3"))
    wait_for_records(run, 2)
    (shard,) = table.shards()
    ((_, last),) = table.numbers()
    wait_until(lambda: table.checkpoints().get(shard) == last, "a checkpoint")
    assert run.stop() == 0
    table.put(1)  # nobody reads it
    table.control(ACTION="DILATE_TIME", HOURS="2")
    table.put(1)
    table.control(ACTION="DILATE_TIME", HOURS="23")
    again = table.app.start(executable=(sys.executable, str(JOURNALING), "3"), worker="w2")
    wait_for_records(again, 1)
    assert keys_of(again) == [3]
    left = records_of(again)[0][0]
    again.wait_for_log(f"{shard}: records MAY BE LOST: those between {last} (")
    (line,) = [one for one in again.output.splitlines() if "MAY BE LOST" in one]
    said = json.loads(line)
    assert said["level"] == "ERROR"
    assert f") and {left} (" in said["msg"]
    assert again.stop() == 0
    notes = [
        json.loads(row["kclMldLoss"]) for row in table.app.items().values() if "kclMldLoss" in row
    ]
    assert [(one["after"], one["before"], one["cause"]) for one in notes] == [
        (last, left, "trimmed")
    ]


def test_the_unchanged_sample_of_kclpy_reads_it(new_table):
    folder = kclpy()
    if folder is None:
        pytest.skip("amazon_kclpy cannot be fetched")
    table = new_table("Sample")
    table.put(2)
    sample = folder / "samples" / "sample_kclpy_app.py"
    run = table.app.start(
        executable=(sys.executable, str(sample)), environment={"PYTHONPATH": str(folder)}
    )
    run.wait_for_log("started child")
    table.control(ACTION="ROLLOVER")
    table.put(1)
    first, last = table.shards()
    wait_until(lambda: table.checkpoints().get(first) == "SHARD_END", "the end of the first shard")
    wait_until(lambda: table.app.owners().get(last), "the lease of its child")
    assert run.stop() == 0
    assert "Traceback" not in run.output


def test_streams_of_two_tables_in_one_worker(new_table):
    tables = new_table("Orders"), new_table("Clicks")
    orders, clicks = tables
    run = orders.app.start(
        executable=(sys.executable, str(JOURNALING), "3", "integer"),
        streamName=None,
        multiStream="true",
        streams=f"{orders.arn}, {clicks.arn}",
    )
    names = [str(TableStreamArn.parse(one.arn).name) for one in tables]
    orders.put(3)
    clicks.put(2)
    wait_for_records(run, 5)
    orders.control(ACTION="ROLLOVER")  # of all tables
    orders.put(1)
    clicks.put(2)
    wait_for_records(run, 8)

    def keys_by_stream():
        found = {}
        for one in entries(run, "records"):
            changes = [json.loads(data) for *_, data in one["records"]]
            keys = [int(change["dynamodb"]["Keys"]["pk"]["S"]) for change in changes]
            found.setdefault(one["stream"], []).extend(keys)
        return found

    assert keys_by_stream() == dict(zip(names, ([0, 1, 2, 3], [0, 1, 2, 3]), strict=True))
    rows = {
        f"{account_of(table)}:{name}:1:{shard_id}": (name, shard_id)
        for table, name in zip(tables, names, strict=True)
        for shard_id in table.shards()
    }
    assert len(rows) == 4
    assert orders.app.items().keys() == rows.keys()
    for key, (name, shard_id) in rows.items():
        row = orders.app.items()[key]
        assert (row["streamName"], row["shardId"]) == (key.removesuffix(f":{shard_id}"), shard_id)
        assert name in row["streamName"]
    assert run.stop() == 0

    clicks.put(1)
    again = orders.app.start(
        executable=(sys.executable, str(JOURNALING), "3"),
        worker="w2",
        streamName=None,
        multiStream="true",
        streams=clicks.arn.partition("/stream/")[0],  # its latest stream
    )
    wait_for_records(again, 1)
    assert {one["stream"] for one in entries(again, "records")} == {names[1]}
    again.wait_for_log("is not in the list, but the lease table has leases of it")
    assert again.stop() == 0


def account_of(table):
    return TableStreamArn.parse(table.arn).account


def test_on_the_embedded_aws_records_come_in_order_and_a_restart_goes_on(aws, tables):
    table = tables(aws.moto_url, "OnEmbedded")
    table.put(3)
    run = table.app.start(executable=(sys.executable, str(JOURNALING), "3", "integer"))
    wait_for_records(run, 3)
    wait_until(lambda: all(map(str.isdecimal, table.checkpoints().values())), "a checkpoint")
    assert run.stop() == 0
    table.put(1)
    again = table.app.start(executable=(sys.executable, str(JOURNALING), "3"), worker="w2")
    wait_for_records(again, 1)
    assert (keys_of(run), keys_of(again)) == ([0, 1, 2], [3])
    assert again.stop() == 0


def test_changes_of_an_item_go_to_one_of_several_children_in_order(new_table):
    """One is killed, then the shard is replaced."""
    table = new_table("Shared")
    names = [f"item-{number}" for number in range(12)]

    def write(*numbers):
        for number, name in itertools.product(numbers, names):
            item = {"pk": {"S": name}, "number": {"N": str(number)}}
            table.dynamodb.put_item(TableName=table.name, Item=item)

    def seen(journal):
        """Name and number of each change that a process got."""
        changes = [
            json.loads(data)["dynamodb"]["NewImage"]
            for entry in journal
            if entry["saw"] == "records"
            for *_, data in entry["records"]
        ]
        return [(change["pk"]["S"], int(change["number"]["N"])) for change in changes]

    def wait_for(*numbers):
        wanted = set(itertools.product(names, numbers))
        wait_until(lambda: wanted <= set(chain(*map(seen, journals(run).values()))), "all are seen")

    write(0, 1)
    run = table.app.start(
        executable=(sys.executable, str(JOURNALING), "3", "each", "{childIndex}"),
        childrenPerShard="3",
        childFailurePolicy="restart",
        childRestartBackoffMillis="50",
    )
    wait_for(0, 1)
    victim = next(pid for pid, journal in journals(run).items() if seen(journal))
    os.kill(victim, signal.SIGKILL)
    write(2, 3)
    wait_for(2, 3)
    table.control(ACTION="ROLLOVER")
    write(4)
    wait_for(4)
    assert run.stop() == 0
    for journal in journals(run).values():
        (child,) = {entry["program"][1] for entry in journal}
        for name in names:
            numbers = [number for found, number in seen(journal) if found == name]
            is_own = crc32(f'{{"pk":{{"S":"{name}"}}}}'.encode()) % 3 == int(child)
            assert bool(numbers) <= is_own
            begins = min(numbers, default=0)
            assert numbers == [*range(begins, begins + len(numbers))]
    old, new = table.shards()
    assert table.checkpoints() == {old: "SHARD_END", new: table.numbers()[-1][-1]}
