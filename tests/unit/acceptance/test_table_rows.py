"""Rows of a table: a lost one, one twice and a foreign one are seen."""

from __future__ import annotations

from kcl_mld.acceptance.rules.table_rows import lost_rows, why_not_once

PUT = {("a", 0), ("a", 1), ("b", 0)}


def test_each_record_once_is_right() -> None:
    rows = [("b", 0), ("a", 1), ("a", 0)]
    assert lost_rows(rows, PUT) == []
    assert why_not_once(rows, PUT, set()) is None


def test_a_lost_record_is_seen() -> None:
    assert lost_rows([("a", 0), ("b", 0)], PUT) == [("a", 1)]


def test_a_record_twice_is_seen() -> None:
    told = why_not_once([*PUT, ("a", 1)], PUT, set())
    assert told == "1 records have several rows, such as ('a', 1)"


def test_a_row_that_nobody_put_is_seen() -> None:
    told = why_not_once([*PUT, ("c", 5)], PUT, set())
    assert told == "1 rows are of records that nobody put, such as ('c', 5)"


def test_a_record_that_the_stream_may_have_twice_may_have_two_rows_but_not_none() -> None:
    unsure = {("a", 1), ("d", 9)}  # what the stream has perhaps not taken is not among PUT
    assert lost_rows([("a", 0), ("b", 0)], PUT) == [("a", 1)]
    assert why_not_once([*PUT, ("a", 1), ("d", 9)], PUT, unsure) is None
