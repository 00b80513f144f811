"""The records that fail are found by halving, each proven by itself."""

import math

import pytest
from hypothesis import given, strategies as st

from kcl_mld.spark.jobs.rescue import TooManyFail, guilty


class Function:
    """Fails of a part in which there is a bad record; counts how often it is asked."""

    def __init__(self, bad):
        self.bad, self.asked = set(bad), 0

    def __call__(self, begin, end):
        self.asked += 1
        return any(begin <= each < end for each in self.bad)


@given(st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.sets(st.integers(0, n - 1)))))
def test_exactly_the_records_that_fail_are_named_in_order(case):
    count, bad = case
    function = Function(bad)
    assert guilty(count, count, function) == sorted(bad)
    assert function.asked <= 1 + 2 * max(1, len(bad)) * (1 + math.ceil(math.log2(count)))


def test_one_record_of_ten_thousand_is_found_with_few_calls():
    function = Function({9_999})
    assert guilty(10_000, 1, function) == [9_999]
    assert function.asked == 15  # a half at a time, and the record by itself


def test_a_fault_that_has_passed_names_nobody():
    assert guilty(100, 100, lambda begin, end: False) == []


def test_a_fault_that_needs_company_names_nobody():
    """Two records that collide, e.g. in a join: such a function is not row-wise."""
    assert guilty(8, 8, lambda begin, end: begin <= 2 < end and begin <= 3 < end) == []


def test_more_than_may_be_named_are_too_many():
    assert guilty(10, 3, Function({1, 4, 7})) == [1, 4, 7]
    with pytest.raises(TooManyFail):
        guilty(10, 2, Function({1, 4, 7}))
