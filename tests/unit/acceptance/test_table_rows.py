"""Rows of a table: a lost one, one twice and a foreign one are seen."""

from __future__ import annotations

from kcl_mld.acceptance.rules.table_rows import lost_rows, why_not_once

PUT = {("a", 0), ("a", 1), ("b", 0)}


def test_each_record_once_is_right() -> None:
    rows = [("b", 0), ("a", 1), ("a", 0)]
    assert lost_rows(rows, PUT, set()) == []
    assert why_not_once(rows, PUT, set()) is None


def test_a_lost_record_is_seen() -> None:
    assert lost_rows([("a", 0), ("b", 0)], PUT, set()) == [("a", 1)]


def test_a_record_twice_is_seen() -> None:
    told = why_not_once([*PUT, ("a", 1)], PUT, set())
    assert told == "1 records have several rows, such as ('a', 1)"


def test_a_row_that_nobody_put_is_seen() -> None:
    told = why_not_once([*PUT, ("c", 5)], PUT, set())
    assert told == "1 rows are of records that nobody put, such as ('c', 5)"


def test_a_record_that_the_stream_may_have_any_number_of_times_is_no_fault() -> None:
    unsure = {("a", 1), ("d", 9)}
    assert lost_rows([("a", 0), ("b", 0)], PUT, unsure) == []
    assert why_not_once([*PUT, ("a", 1), ("d", 9)], PUT, unsure) is None
