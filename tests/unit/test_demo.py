"""What the demo counts and draws; its last line is worth what these are."""

import datetime as dt
import importlib
import math
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

APPS = Path(__file__).resolve().parents[2] / "sample_apps"
MODULES = ("demo_kclpy", "demo_plot", "demo_spark")


@pytest.fixture(autouse=True)
def modules(monkeypatch):
    """The demo's modules as the demo finds them; forgotten afterwards."""
    monkeypatch.syspath_prepend(str(APPS))
    before = set(sys.modules)
    yield {name: importlib.import_module(name) for name in MODULES}
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(
            sys.modules[name].__file__
        ).is_relative_to(APPS):
            del sys.modules[name]


def append(path, *rows):
    """One commit of a Delta table."""
    write_deltalake(path, pa.table({"row": pa.array(rows, pa.int64())}), mode="append")


def test_lost_and_doubled_rows_are_counted_from_the_files(modules, tmp_path):
    append(tmp_path, 0, 1, 2)
    append(tmp_path, 2, 2, 4)
    committed = modules["demo_spark"].Committed(tmp_path)
    assert committed.refresh() == 4
    assert committed.judge(6) == {"spark_rows": 6, "spark_duplicates": 2, "spark_lost": 2}


def test_a_file_is_counted_once_however_often_we_look(modules, tmp_path):
    committed = modules["demo_spark"].Committed(tmp_path)
    append(tmp_path, 0)
    committed.refresh()
    append(tmp_path, 1)
    assert committed.refresh() == 2
    assert committed.judge(2) == {"spark_rows": 2, "spark_duplicates": 0, "spark_lost": 0}


def test_what_no_reader_sees_does_not_count(modules, tmp_path):
    pq.write_table(pa.table({"row": [0]}), tmp_path / "part-0.parquet")
    committed = modules["demo_spark"].Committed(tmp_path)
    assert committed.refresh() == 0
    assert committed.judge(1)["spark_lost"] == 1


def batch(at, *rows):
    """A line of the kclpy program's journal."""
    return {"at": at, "shard": "s", "rows": [list(row) for row in rows], "carriers": {}}


def test_the_kclpy_part_counts_lost_doubled_and_disordered_rows(modules):
    found = modules["demo_kclpy"].judge(
        [batch(2, (1, "a", "8"), (3, "b", "9")), batch(1, (2, "a", "7"), (3, "b", "9"))], 5
    )
    assert (found["processed"], found["lost"]) == (3, 2)
    assert (found["duplicates"], found["out_of_order"]) == (1, 1)


JANUARY = [dt.date(2013, 1, day) for day in range(1, 31)]
OCTOBER = [dt.date(2013, 10, day) for day in range(1, 11)]


def test_months_without_flights_take_no_room_and_break_the_line(modules):
    days = modules["demo_plot"].Days([*OCTOBER, *JANUARY, *JANUARY])
    assert days.gaps == [30]
    xs, ys = days.line(dict.fromkeys([*JANUARY, *OCTOBER[1:]], 1.0))
    assert (xs[29], xs[30], xs[31]) == (29, 29.5, 30)
    assert math.isnan(ys[30])
    assert math.isnan(ys[31])
    assert ys[32] == 1.0


def test_the_axis_names_the_first_day_after_each_gap(modules):
    places, labels = modules["demo_plot"].Days([*JANUARY, *OCTOBER]).ticks()
    assert labels[0] == "Jan 1"
    assert "Oct 1" in labels
    assert len(places) == len(labels) <= 8


def test_the_mean_of_everybody_is_weighted_with_the_flights(modules):
    rows = [
        {"day": 1, "delay_min": 10.0, "flights": 3},
        {"day": 1, "delay_min": 2.0, "flights": 1},
        {"day": 1, "delay_min": None, "flights": 7},
    ]
    assert modules["demo_plot"].means(rows) == {1: 8.0}


def test_the_plot_is_a_picture_also_when_a_carrier_has_one_flight(modules, tmp_path):
    rows = [
        {"carrier": "UA", "airline": "United", "day": day, "flights": 5, "delay_min": 1.0}
        for day in [*JANUARY, *OCTOBER]
    ]
    rows.append(
        {"carrier": "OO", "airline": None, "day": JANUARY[3], "flights": 1, "delay_min": None}
    )
    modules["demo_plot"].draw(rows, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
