"""What a lease carries."""

import pytest

from mld.decide.leases.throughput import throughput_after
from mld.model.attributes import decimal


def test_a_mebibyte_in_one_window_of_java_then_nothing():
    known, texts = None, []
    for received in (1 << 20, 0, 0):
        known = throughput_after(known, received, 3.308)
        texts.append(decimal(known)["N"])
    assert texts == ["309.5526", "154.7763", "77.38815"]


def test_a_new_holder_begins_with_what_the_row_says():
    assert throughput_after(200.0, round(200 * 1024 * 3.308), 3.308) == pytest.approx(200, abs=0.01)


def test_a_long_window_weighs_as_much_as_java_s_in_the_same_time():
    steps = throughput_after(throughput_after(100.0, 0, 3.308), 0, 3.308)
    assert throughput_after(100.0, 0, 6.616) == pytest.approx(steps)
