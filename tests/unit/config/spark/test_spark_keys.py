"""The table of ``spark.*`` keys, and what is wrong with a value."""

import pytest

from kcl_mld.config.spark.keys import KEYS, check, duration_s, is_known, size_bytes


def test_every_default_is_a_good_value():
    defaults = [(key.name, key.default) for key in KEYS if key.default is not None]
    assert [name for name, text in defaults if check(name, text) is not None] == []


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("spark.batch.maxRecords", "many", "not a whole number"),
        ("spark.batch.maxRecords", "0", "less than the least"),
        ("spark.batch.maxBytes", "16 apples", "not a size"),
        ("spark.batch.maxDelay", "soon", "not a duration"),
        ("spark.batch.maxDelay", "50ms", "less than the least"),
        ("spark.batch.maxDelay", "8785h", "more than the most that is taken, 8784h"),
        ("spark.batch.timeout", "9" * 300 + "h", "more than the most that is taken, 8784h"),
        ("spark.batch.maxBytes", "1025g", "more than the most that is taken, 1024g"),
        ("spark.retry.attempts", "2147483648", "more than the most that is taken, 2147483647"),
        ("spark.sink", "paper", "not one of delta, merge"),
    ],
)
def test_a_bad_value_is_told(name, text, why):
    assert why in check(name, text)


def test_unknown_keys_are_not_judged_and_free_ones_are_known():
    assert check("spark.bach.maxRecords", "x") is None
    assert not is_known("spark.bach.maxRecords")
    assert is_known("spark.conf.spark.sql.shuffle.partitions")
    assert not is_known("spark.conf.")


def test_sizes_and_durations_have_units():
    assert [size_bytes(text) for text in ("7", "2k", "16m", "1G", "3mb")] == [
        *(7, 2048, 16 * 1024**2, 1024**3, 3 * 1024**2),
    ]
    assert [duration_s(text) for text in ("50ms", "1.5s", "2m", "1h")] == [0.05, 1.5, 120, 3600]


@pytest.mark.parametrize(
    ("name", "text", "least"),
    [
        ("spark.driver.memory", "64m", "450m"),
        ("spark.batch.maxDelay", "1ms", "0.1s"),
        ("spark.retry.attempts", "0", "1"),
    ],
)
def test_the_least_that_works_is_told_as_people_write_it(name, text, least):
    assert check(name, text) == f"'{text}' is less than the least that works, {least}"
