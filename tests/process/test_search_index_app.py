"""The sample that keeps a search index of a table."""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import sqlite3
import sys
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from botocore.stub import Stubber

from kcl_mld.children.adapters.kclpy_path import SHIM
from tests.markdown_pages import page
from tests.process.daemon import wait_until

APP = Path(__file__).parents[2] / "sample_apps" / "search_index_app.py"
RECORDED = json.loads(
    (Path(__file__).parents[1] / "data" / "dynamodb_streams" / "records.json").read_text("utf-8")
)

STREAM = "us-east-1$123456789012$Orders$2026-11-28T07_09_24.310"
NEXT_STREAM = "us-east-1$123456789012$Orders$2026-11-29T00_00_00.001"


@pytest.fixture
def app(monkeypatch):
    """The program's module, not run."""
    monkeypatch.syspath_prepend(str(SHIM))
    before = set(sys.modules)
    spec = importlib.util.spec_from_file_location("search_index_app", APP)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in set(sys.modules) - before:
        if name.startswith("amazon_kclpy"):
            del sys.modules[name]


def change(number, key, text):
    """Of an item to this text; None deletes it."""
    content = {"Keys": {"pk": {"S": key}}, "SequenceNumber": str(number)}
    if text is not None:
        content["NewImage"] = {"pk": {"S": key}, "text": {"S": text}}
    return {"eventName": "REMOVE" if text is None else "MODIFY", "dynamodb": content}


CHANGES = [
    change(9, "a", "green tea"),
    change(10, "b", "black tea"),
    change(11, "a", "coffee"),
    change(100, "b", None),
    change(101, "c", "tea"),
    change(102, "c", None),
    change(10**27, "c", "white tea"),
]


def contents(database):
    """Text of each item that is there, by its key; and the keys that a search for tea finds."""
    rows = database.execute("SELECT item FROM items WHERE item IS NOT NULL").fetchall()
    items = [json.loads(item) for (item,) in rows]
    query = "SELECT item FROM items JOIN search ON search.rowid = items.id WHERE search MATCH 'tea'"
    found = [json.loads(item)["pk"]["S"] for (item,) in database.execute(query)]
    return {item["pk"]["S"]: item["text"]["S"] for item in items}, sorted(found)


def orders():
    """The changes in their order, twice, from the middle again, and in others."""
    yield CHANGES
    yield CHANGES * 2
    yield CHANGES[:5] + CHANGES[2:]
    rng = random.Random(1)
    yield from (rng.sample(CHANGES * 2, 2 * len(CHANGES)) for _ in range(50))


def test_the_index_is_equal_to_the_table_however_often_and_in_which_order_changes_come(app):
    for changes in orders():
        index = app.SearchIndex(":memory:", STREAM)
        with index.transaction():
            for each in changes:
                index.apply(each)
        assert contents(index.database) == ({"a": "coffee", "c": "white tea"}, ["c"])
        index.database.close()


@pytest.mark.parametrize("is_late", [False, True])
def test_no_number_of_a_disabled_stream_wins_over_the_next_stream(app, tmp_path, is_late):
    before = (STREAM, [change(10**27, "a", "green tea"), change(10**27 + 1, "b", "black tea")])
    after = (NEXT_STREAM, [change(5, "a", "coffee"), change(6, "b", None)])
    for stream, changes in [after, before] if is_late else [before, after]:
        index = app.SearchIndex(str(tmp_path / "search.db"), stream)
        for each in changes:
            index.apply(each)
        found = contents(index.database)
        index.database.close()
    assert found == ({"a": "coffee"}, [])


def fill(app, monkeypatch, items):
    """Run the page's program that fills an index, in front of a table with these items."""
    programs = [one.text for one in page("docs/dynamodb-streams.md").fences]
    (program,) = (text for text in programs if "SearchIndex" in text)
    client = boto3.client("dynamodb", "us-east-1", aws_access_key_id="x", aws_secret_access_key="y")
    pages = Stubber(client)
    for number, item in enumerate(items, 1):
        last = {} if number == len(items) else {"LastEvaluatedKey": {"pk": item["pk"]}}
        place = {"ExclusiveStartKey": {"pk": items[number - 2]["pk"]}} if number > 1 else {}
        pages.add_response("scan", {"Items": [item]} | last, {"TableName": "Orders"} | place)
    with pages, monkeypatch.context() as patched:
        patched.setattr(boto3, "client", lambda _service: client)
        patched.setitem(sys.modules, "search_index_app", app)
        names = {}
        exec(program, names)
        names["index"].database.close()
    pages.assert_no_pending_responses()


@pytest.mark.parametrize("at", range(len(CHANGES) + 1))
def test_what_fills_the_index_replaces_no_change(app, monkeypatch, tmp_path, at):
    monkeypatch.chdir(tmp_path)
    index = app.SearchIndex("search.db", STREAM)
    for each in CHANGES[:at]:
        index.apply(each)
    scanned = [change(0, "a", "green tea"), change(0, "c", "tea"), change(0, "d", "old tea")]
    fill(app, monkeypatch, [one["dynamodb"]["NewImage"] for one in scanned])
    for each in CHANGES[at:]:
        index.apply(each)
    found = contents(index.database)
    index.database.close()
    assert found == ({"a": "coffee", "c": "white tea", "d": "old tea"}, ["c", "d"])


def test_it_takes_each_recorded_change_with_images(app):
    index = app.SearchIndex(":memory:", STREAM)
    taken = [json.loads(one["v1_data"]) for one in RECORDED]
    taken = [one for one in taken if one["dynamodb"]["StreamViewType"] == "NEW_AND_OLD_IMAGES"]
    assert len(taken) > 5
    for each in taken:
        index.apply(each)
    keys = {json.dumps(one["dynamodb"]["Keys"], sort_keys=True) for one in taken}
    assert {key for (key,) in index.database.execute("SELECT key FROM items")} == keys
    index.database.close()


def test_texts_are_found_at_any_depth(app):
    item = {
        "M": {"a": {"L": [{"S": "one"}, {"M": {"b": {"SS": ["two", "three"]}}}]}, "n": {"N": "4"}}
    }
    assert [*app.texts(item)] == ["one", "two", "three"]


class Batch:
    """What the program is given; counts its checkpoints."""

    def __init__(self, *changes):
        self.records = [SimpleNamespace(binary_data=json.dumps(each)) for each in changes]
        self.checkpointer = self
        self.checkpoints = 0

    def checkpoint(self):
        self.checkpoints += 1


def test_a_batch_that_fails_leaves_nothing_and_ends_the_program(app, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SEARCH_INDEX", str(tmp_path / "search.db"))
    monkeypatch.setenv("KCL_STREAM_NAME", STREAM)
    program = app.Processor()
    program.initialize(None)
    program.process_records(good := Batch(CHANGES[0]))
    no_image = {"eventName": "MODIFY", "dynamodb": {"Keys": {}, "SequenceNumber": "12"}}
    with pytest.raises(SystemExit) as ended:
        program.process_records(bad := Batch(CHANGES[1], no_image))
    assert ended.value.code == 1
    assert "KeyError: 'NewImage'" in capsys.readouterr().err
    assert (good.checkpoints, bad.checkpoints) == (1, 0)
    assert contents(program.index.database) == ({"a": "green tea"}, ["a"])
    program.index.database.close()


def test_a_worker_keeps_it_through_replaced_shards_and_a_kill(new_table, tmp_path):
    table = new_table("Indexed")
    path = tmp_path / "search.db"
    numbers = itertools.count()

    def write(*names):
        for name in names:
            item = {"pk": {"S": name}, "text": {"S": f"tea {next(numbers)}"}}
            table.dynamodb.put_item(TableName=table.name, Item=item)

    def start(worker):
        return table.app.start(
            executable=(sys.executable, str(APP)),
            environment={"SEARCH_INDEX": str(path)},
            worker=worker,
        )

    def is_equal():
        if not path.exists():
            return False
        items = table.dynamodb.scan(TableName=table.name)["Items"]
        expected = {item["pk"]["S"]: item["text"]["S"] for item in items}
        database = sqlite3.connect(path, timeout=60)
        try:
            return contents(database) == (expected, sorted(expected))
        except sqlite3.OperationalError:  # no table yet
            return False
        finally:
            database.close()

    write("a", "b", "c")
    first = start("w1")
    wait_until(is_equal, "the first items")
    table.control(ACTION="ROLLOVER")
    write("a", "d")
    table.dynamodb.delete_item(TableName=table.name, Key={"pk": {"S": "b"}})
    wait_until(is_equal, "the items of the next shard")
    first.kill()
    write("e", "a")
    table.dynamodb.delete_item(TableName=table.name, Key={"pk": {"S": "c"}})
    table.control(ACTION="ROLLOVER")
    write("c")
    second = start("w2")
    wait_until(is_equal, "what came meanwhile")
    assert second.stop() == 0
    assert "Traceback" not in second.output
