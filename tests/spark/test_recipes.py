"""The programs of ``docs/spark/recipes.md``: what their functions make of several batches."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from kcl_mld.spark.config import rooted
from kcl_mld.spark.model import MicroBatch, Position, Row, ShardBatch, ShardKey
from kcl_mld.spark.plans.one_call import FunctionCaller
from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.registration import load_app
from kcl_mld.spark.rows.app_decoder import AppDecoder
from kcl_mld.spark.sinks import make_sink
from tests.markdown_pages import page
from tests.page_commands import blocks_of
from tests.spark.conftest import spark_config

pytestmark = pytest.mark.spark

PAGE = "docs/spark/recipes.md"
SHARD = ShardKey("app", "stream", "shardId-0")


def files():
    """The files of the page, by name."""
    found = {}
    for fence in page(PAGE).fences:
        for note in fence.notes:
            if note.startswith("test: file: "):
                found[note.removeprefix("test: file: ")] = fence.text
    return found


class Recipe:
    """A program of the page over its own sink."""

    def __init__(self, spark, name, folder):
        self.spark, self.folder, self.end = spark, folder, 0
        (folder / f"{name}.py").write_text(files()[f"{name}.py"])
        properties = dict(
            (part.strip() for part in line.split("=", 1))
            for line in files()[f"{name}.lines"].splitlines()
        )
        program = properties.pop("executableName")
        assert program == f"kcl-mld-spark {name}.py"
        more = {key.removeprefix("spark."): text for key, text in properties.items()}
        config = rooted(spark_config(**more), str(folder))
        pipeline = load_app(folder / f"{name}.py")
        self.caller = FunctionCaller(pipeline.function, config, AppDecoder(pipeline, config))
        self.sink = make_sink(config, "app")
        self.sink.prepare(spark)
        self.sink.mark(SHARD)

    def batch(self, *records, arrived=datetime(2026, 1, 1, 12, tzinfo=UTC)):
        """The next one, committed."""
        first, self.end = self.end, self.end + len(records)
        rows = tuple(
            Row(Position(first + n + 1), "k", json.dumps(each).encode(), self._ms(arrived))
            for n, each in enumerate(records)
        )
        one = ShardBatch(SHARD, Position(first) if first else None, Position(self.end), rows)
        answer = self.caller.call(self.spark, MicroBatch((one,)))
        staged = self.sink.write(answer, [one])
        assert set(self.sink.commit_all(staged, [one]).values()) == {CommitOutcome.STANDS}
        self.sink.discard(staged)

    def rows(self, *columns, name):
        table = DeltaTable(self.folder / name).to_pyarrow_table(columns=list(columns))
        return sorted(tuple(row.values()) for row in table.to_pylist())

    @staticmethod
    def _ms(moment):
        return int(moment.timestamp() * 1000)


@pytest.fixture
def recipe(spark, tmp_path, monkeypatch):
    """Makes recipes; what an app's program leaves in this process goes with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    # Or processes that later tests spawn would execute the app.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    return lambda name: Recipe(spark, name, tmp_path)


def test_every_program_of_the_page_has_its_lines_and_is_run_by_it():
    programs = {name.removesuffix(".py") for name in files() if name.endswith(".py")}
    assert programs == {"sessions", "unique", "hours", "prices", "copy"}
    assert {f"{name}.lines" for name in programs} <= files().keys()
    typed = "".join(block.commands for block in blocks_of(PAGE))
    assert all(f"kcl-mld local --properties {name}.properties" in typed for name in programs)


def test_a_session_grows_over_batches_until_nothing_comes_for_half_an_hour(recipe):
    def at(user, time):
        return {"user": user, "time": f"2026-01-01T{time}:00Z"}

    sessions = recipe("sessions")
    sessions.batch(at("ann", "10:00"), at("bob", "10:00"), at("ann", "10:20"), {"user": "eve"})
    sessions.batch(at("ann", "10:50"), at("ann", "11:21"), at("bob", "10:31"))
    sessions.batch(at("ann", "11:40"), at("ann", "11:15"), at("eve", "10:00"))
    # After its successor: a session of its own.
    sessions.batch(at("ann", "10:10"), at("bob", "10:45"))
    found = sessions.rows("user", "started", "ended", "events", name="sessions")
    assert [(user, f"{a:%H:%M}", f"{b:%H:%M}", n) for user, a, b, n in found] == [
        ("ann", "10:00", "10:50", 3),
        ("ann", "10:10", "10:10", 1),
        ("ann", "11:15", "11:40", 3),
        ("bob", "10:00", "10:00", 1),
        ("bob", "10:31", "10:45", 2),
        ("eve", "10:00", "10:00", 1),
    ]


def test_a_key_is_there_once_a_day_whatever_batch_it_comes_in(recipe):
    def order(key, day):
        return {"id": key, "amount": 1.5, "time": f"2026-01-{day:02}T10:00:00Z"}

    unique = recipe("unique")
    unique.batch(order("a", 1), order("a", 1), order("b", 1))
    unique.batch(order("a", 1), order("a", 2), order("c", 1))
    found = [(each[0], each[1].day) for each in unique.rows("id", "day", name="unique")]
    assert found == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]


def test_late_records_count_in_their_hour_and_later_ones_are_kept_apart(recipe):
    hours = recipe("hours")
    hours.batch({"amount": 1, "time": "2026-01-01T10:10:00Z"}, {"amount": 2, "time": None})
    hours.batch(
        {"amount": 4, "time": "2026-01-01T10:50:00Z"},
        {"amount": 8, "time": "2025-12-30T12:00:00Z"},
        {"amount": 16, "time": "2025-12-30T11:59:59Z"},
    )
    sums = {}
    table = DeltaTable(hours.folder / "amounts" / "hours").to_pyarrow_table().to_pylist()
    for row in table:
        name = row["hour"] and f"{row['hour']:%d %H}"
        sums[name] = sums.get(name, 0) + row["amount"]
    assert sums == {"01 10": 5, None: 2, "30 12": 8}
    assert [row[0] for row in hours.rows("amount", name="amounts/late")] == [16]


def test_a_static_table_is_read_again_when_it_is_old(recipe, monkeypatch, tmp_path):
    (tmp_path / "prices.csv").write_text("product,price\ntea,4.5\n")
    orders = recipe("prices")
    main = sys.modules["__main__"]
    orders.batch({"product": "tea", "pieces": 1})
    (tmp_path / "prices.csv").write_text("product,price\ntea,5\n")
    orders.batch({"product": "tea", "pieces": 2})
    monkeypatch.setattr(main, "EVERY_S", -1)
    orders.batch({"product": "tea", "pieces": 3}, {"product": "rice", "pieces": 4})
    found = orders.rows("pieces", "price", name="orders")
    assert found == [(1, 4.5), (2, 4.5), (3, 5.0), (4, None)]


def change(event, key, customer=None, amount=None):
    """A change of the table of orders."""
    image = {"id": {"S": key}, "customer": {"S": customer}, "amount": {"N": amount}}
    images = {} if event == "REMOVE" else {"NewImage": image}
    return {"eventName": event, "dynamodb": {"Keys": {"id": {"S": key}}} | images}


def living(copy):
    rows = copy.rows("id", "customer", "amount", "is_deleted", name="orders_copy")
    return [row[:3] for row in rows if not row[3]]


def test_a_copy_has_the_items_of_the_table(recipe):
    copy = recipe("copy")
    copy.batch(
        change("INSERT", "7", "ann", "1.50"),
        change("INSERT", "8", "bob", "2"),
        change("MODIFY", "7", "ann", "3"),
    )
    assert living(copy) == [("7", "ann", Decimal(3)), ("8", "bob", Decimal(2))]
    copy.batch(change("REMOVE", "7"), change("INSERT", "9", "eve", "4"), change("REMOVE", "9"))
    assert living(copy) == [("8", "bob", Decimal(2))]
    copy.batch(change("INSERT", "7", "zoe", "12345678901234567890.25"))
    assert living(copy) == [
        ("7", "zoe", Decimal("12345678901234567890.25")),
        ("8", "bob", Decimal(2)),
    ]


def test_a_copy_begins_with_the_items_that_were_there(recipe, tmp_path):
    before = [("7", "ann"), ("8", "bob"), ("9", "eve")]
    rows = [
        {
            "id": key,
            "customer": name,
            "amount": Decimal(1),
            "is_deleted": False,
            "sequence_number": "0",
            "sub_sequence_number": 0,
        }
        for key, name in before
    ]
    schema = pa.schema(
        [
            ("id", pa.string()),
            ("customer", pa.string()),
            ("amount", pa.decimal128(38, 2)),
            ("is_deleted", pa.bool_()),
            ("sequence_number", pa.string()),
            ("sub_sequence_number", pa.int64()),
        ]
    )
    write_deltalake(tmp_path / "orders_copy", pa.Table.from_pylist(rows, schema))
    copy = recipe("copy")
    copy.batch(change("MODIFY", "7", "ann", "2"), change("REMOVE", "8"))
    assert living(copy) == [("7", "ann", Decimal(2)), ("9", "eve", Decimal(1))]
