"""How long a server that starts is waited for, in virtual time."""

import os
import subprocess
import sys

import pytest

from kcl_mld.spark.server.launcher import cpu_s
from kcl_mld.spark.server.patience import StartPatience


def waited_s(limit_s, cpu, lines=lambda now: 0, until=10_000.0):
    """When a server is given up that uses time of the processor and prints like this."""
    patience, now = StartPatience(limit_s, 0.0), 0.0
    while now < until and (left_s := patience.left_s(now, cpu(now), lines(now))) > 0:
        now += left_s
    return now, patience.description(now)


def test_one_that_does_nothing_is_given_up_at_its_limit():
    assert waited_s(120, lambda _: 0.0) == (120, "120 s")


def test_one_that_only_idles_is_given_up_then_too():
    assert waited_s(120, lambda now: now * 0.002) == (120, "120 s")


def test_one_that_gets_on_at_a_load_of_28_has_twice_the_time():
    """It gets a twentieth of a processor."""
    assert waited_s(120, lambda now: now * 0.05) == (240, "240 s, although it was not idle")


def test_one_that_prints_has_twice_the_time_also_where_its_use_is_not_known():
    assert waited_s(120, lambda _: 0.0, lambda now: int(now // 5))[0] == 240


def test_one_that_stops_getting_on_is_given_up_soon():
    at, told = waited_s(120, lambda now: min(now, 150) * 0.05)
    assert 150 < at <= 162
    assert told == f"{at:.0f} s"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_the_use_of_a_process_is_known_and_that_of_none_is_zero():
    assert cpu_s(os.getpid()) > 0
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    assert cpu_s(gone.pid) == 0.0
