"""From counters to percent."""

import pytest

from kcl_mld.errors import MalformedData
from kcl_mld.fleet.rules.worker_load import (
    CpuReading,
    HostTimes,
    group_percent,
    host_percent,
    host_times,
    online_processors,
    processors,
    quota_v1,
    quota_v2,
    task_limit,
    task_percent,
    usage_v2_s,
)

STAT = "cpu  100 20 30 800 50 7 8 9 0 0\ncpu0 1 2 3 4 5\nintr 5\n"


def test_the_host_s_times_are_those_of_all_processors_without_interrupts():
    assert host_times(STAT) == HostTimes(1000, 800)


@pytest.mark.parametrize("text", ["", "cpu 1 2 3 4", "cpu0 1 2 3 4 5", "cpu 1 2 3 x 5"])
def test_what_is_no_stat_file_is_refused(text):
    with pytest.raises(MalformedData):
        host_times(text)


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        (HostTimes(1000, 800), HostTimes(1200, 950), 25.0),
        (HostTimes(1000, 800), HostTimes(1100, 900), 0.0),
        (None, HostTimes(1000, 800), None),
        (HostTimes(1000, 800), HostTimes(1000, 800), None),
        (HostTimes(1000, 800), HostTimes(1010, 820), None),  # the waiting time went back
        (HostTimes(1000, 800), HostTimes(1000, 810), None),
    ],
)
def test_the_host_is_busy_while_it_is_not_idle(before, after, percent):
    assert host_percent(before, after) == percent


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [
        (CpuReading(10.0, 100.0), CpuReading(10.5, 101.0), 25.0),
        (CpuReading(10.0, 100.0), CpuReading(15.0, 101.0), 100.0),
        (None, CpuReading(15.0, 101.0), None),
        (CpuReading(10.0, 100.0), CpuReading(11.0, 100.0), None),
        (CpuReading(10.0, 100.0), CpuReading(9.0, 101.0), None),
    ],
)
def test_a_group_has_a_share_of_its_two_processors(before, after, percent):
    assert group_percent(before, after, 2.0) == percent


def test_files_of_cgroup_v2():
    assert usage_v2_s("usage_usec 2500000\nuser_usec 1\n") == 2.5
    assert quota_v2("150000 100000\n") == 1.5
    assert quota_v2("max 100000\n") is None


def test_files_of_cgroup_v1():
    assert quota_v1("50000\n", "100000\n") == 0.5
    assert quota_v1("-1\n", "100000\n") is None


@pytest.mark.parametrize(("text", "count"), [("0-3", 4), ("0", 1), ("0-1, 4,6-7\n", 5)])
def test_lists_of_processors(text, count):
    assert processors(text) == count


@pytest.mark.parametrize(
    "read",
    [
        lambda: usage_v2_s("user_usec 1\n"),
        lambda: usage_v2_s("usage_usec x\n"),
        lambda: quota_v2("max"),
        lambda: quota_v2("100 0"),
        lambda: quota_v1("x", "100000"),
        lambda: processors(""),
        lambda: processors("0-"),
        lambda: processors("all"),
    ],
)
def test_other_texts_are_refused(read):
    with pytest.raises(MalformedData):
        read()


def stats(used=3_000, system=50_000, used_before=1_000, system_before=40_000):
    return {
        "cpu_stats": {
            "cpu_usage": {"total_usage": used},
            "system_cpu_usage": system,
            "online_cpus": 4,
        },
        "precpu_stats": {
            "cpu_usage": {"total_usage": used_before},
            "system_cpu_usage": system_before,
        },
    }


def test_a_container_of_a_task_has_a_share_of_its_limit():
    # 2000 of 10000 ticks of 4 processors are 0.8 processors.
    assert task_percent(stats(), 1.6) == pytest.approx(50.0)
    assert task_percent(stats(), 0.5) == 100.0


def test_a_task_s_first_reading_tells_nothing():
    first = stats(used_before=0, system_before=0)
    del first["precpu_stats"]["system_cpu_usage"]
    assert task_percent(first, 1.0) is None
    assert task_percent(stats(system=40_000), 1.0) is None


@pytest.mark.parametrize("broken", [{}, {"cpu_stats": {}}, {"cpu_stats": {"cpu_usage": 3}}])
def test_stats_without_numbers_are_refused(broken):
    with pytest.raises(MalformedData):
        task_percent(broken, 1.0)
    with pytest.raises(MalformedData):
        online_processors(broken)


def test_containers_divide_their_task_by_their_shares():
    task = {
        "Limits": {"CPU": 2.0},
        "Containers": [
            {"DockerId": "me", "Limits": {"CPU": 512}},
            {"DockerId": "other", "Limits": {"CPU": 1536}},
        ],
    }
    assert task_limit(task, "me", online=8) == 0.5
    assert task_limit({"Containers": []}, "me", online=8) == 8
    assert task_limit({"Containers": [{"DockerId": "other", "Limits": {}}]}, "me", online=8) == 4
