"""The functions of the sample apps, on a few records."""

import datetime as dt
import decimal
import importlib
import importlib.util
import json
from pathlib import Path

import pytest
from pyspark.sql import functions as F

from kcl_mld.spark.batch_context import BatchContext
from kcl_mld.spark.model import Position

pytestmark = pytest.mark.spark

APPS = Path(__file__).resolve().parents[2] / "sample_apps"
SHARD = "shardId-000000000000"


@pytest.fixture(autouse=True)
def app_folder(monkeypatch):
    """The folder of the apps is where an app finds its own modules."""
    monkeypatch.syspath_prepend(str(APPS))


def app(name):
    """The module of an app, not run."""
    spec = importlib.util.spec_from_file_location(name, APPS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def context(spark, after=None):
    """Of a batch of three records."""
    to = Position((after.sequence if after else 0) + 3)
    return BatchContext(
        spark=spark,
        application="app",
        stream_name="stream",
        shard_id=SHARD,
        batch_id=f"{SHARD}@{'start' if after is None else after}",
        after=after,
        to=to,
        count=3,
        is_replay=False,
        millis_behind_latest=0,
    )


FLIGHTS = [
    {"row": 0, "carrier": "UA", "time_hour": "2013-01-01T10:00:00Z", "dep_delay": 2.0},
    {"row": 1, "carrier": "??", "time_hour": "2013-07-02T03:00:00Z", "dep_delay": None},
    {"row": 2, "carrier": "B6", "time_hour": "2013-01-01T04:00:00Z", "dep_delay": -1.0},
]


@pytest.fixture
def flights_app(monkeypatch):
    """The app with two airlines instead of those of the installed package."""
    found = app("spark_flights_app")
    names = {"UA": "United Air Lines Inc.", "B6": "JetBlue Airways"}
    monkeypatch.setattr(found.flights_data, "airlines", lambda: names)
    return found


def decoded(spark, found):
    """The flights as the json decoder makes columns of them."""
    lines = [(json.dumps(flight),) for flight in FLIGHTS]
    frame = spark.createDataFrame(lines, "line string")
    return frame.select(F.from_json("line", found.SCHEMA).alias("flight")).select("flight.*")


def test_a_flight_is_one_row_with_its_airline_and_the_hour_in_new_york(spark, flights_app):
    rows = flights_app.process(decoded(spark, flights_app), context(spark)).orderBy("row").collect()
    found = [(row.row, row.airline, row.day, row.hour, row.dep_delay) for row in rows]
    assert found == [
        (0, "United Air Lines Inc.", dt.date(2013, 1, 1), 5, 2.0),
        (1, None, dt.date(2013, 7, 1), 23, None),
        (2, "JetBlue Airways", dt.date(2012, 12, 31), 23, -1.0),
    ]


def test_plans_of_several_batches_can_be_united_into_one_job(spark, flights_app):
    one = flights_app.process(decoded(spark, flights_app), context(spark))
    two = flights_app.process(decoded(spark, flights_app), context(spark, Position(3)))
    assert one.schema == two.schema
    assert one.union(two).count() == 2 * len(FLIGHTS)


def test_the_airlines_become_a_table_once_a_session(spark, flights_app):
    assert flights_app.airlines(spark) is flights_app.airlines(spark)


def test_the_demos_report_has_the_mean_delay_per_carrier_and_hour_and_day(spark, flights_app):
    report = importlib.import_module("demo_report")
    rows = flights_app.process(decoded(spark, flights_app), context(spark))
    hours, days = report.by_hour(rows).collect(), report.by_day(rows).collect()
    assert [(row.carrier, row.hour, row.flights, row.delay_min) for row in hours] == [
        ("??", 23, 1, None),
        ("B6", 23, 1, -1.0),
        ("UA", 5, 1, 2.0),
    ]
    assert [row.day for row in days if row.carrier == "UA"] == [dt.date(2013, 1, 1)]
    text = report.table(hours).splitlines()
    assert text[1].split()[0] == "5"
    assert text[-1].split() == ["UA", "United", "Air", "Lines", "Inc.", "2", *["-"] * 18]


def orders(spark, *lines):
    """Raw records."""
    return spark.createDataFrame([(line.encode(),) for line in lines], "data binary")


def test_orders_are_summed_up_per_batch_and_over_all_batches(spark):
    found = app("spark_orders_app")
    first = orders(spark, "1;tea;3;4.50", "2;rice;1;2.00", "3;tea;1;4.50")
    second = orders(spark, "4;rice;2;2.10")
    batches = [found.process(each, context(spark)) for each in (first, second)]
    rows = found.turnover(batches[0].union(batches[1])).collect()
    assert {(row["product"], row["pieces"], row["turnover"]) for row in rows} == {
        ("tea", 4, decimal.Decimal("18.00")),
        ("rice", 3, decimal.Decimal("6.20")),
    }
