"""Whether a failed child gets another chance."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kcl_mld.children.rules.lifecycle import (
    CAP_S,
    SHARD_END_ATTEMPTS,
    RestartCount,
    restart_pause_s,
)
from kcl_mld.config.config import ChildConfig, ChildFailurePolicy

EXIT = ChildConfig(argv=("x",))
RESTART = ChildConfig(
    argv=("x",),
    failure_policy=ChildFailurePolicy.RESTART,
    restart_backoff_s=2.0,
    restart_attempts=3,
)


def pause(config, count, *, forgot_end=False):
    return restart_pause_s(config, count, random.Random(1), forgot_end=forgot_end)


def test_by_default_a_failure_ends_the_daemon():
    assert pause(EXIT, RestartCount(failures=1)) is None


def test_restarts_back_off_and_give_up():
    pauses = [pause(RESTART, RestartCount(failures=number)) for number in (1, 2, 3)]
    assert all(
        longest / 2 <= got <= longest for got, longest in zip(pauses, (2, 4, 8), strict=True)
    )
    assert pause(RESTART, RestartCount(failures=4)) is None


def test_no_pause_is_longer_than_a_minute():
    patient = ChildConfig(
        argv=("x",), failure_policy=ChildFailurePolicy.RESTART, restart_attempts=1000
    )
    assert CAP_S / 2 <= pause(patient, RestartCount(failures=900)) <= CAP_S


def test_a_forgotten_end_is_asked_for_again_under_every_policy():
    for config in (EXIT, RESTART):
        count = RestartCount()
        for _ in range(SHARD_END_ATTEMPTS):
            count = count.after_failure(forgot_end=True)
            assert pause(config, count, forgot_end=True) is not None
            count = count.after_progress()
        count = count.after_failure(forgot_end=True)
        assert pause(config, count, forgot_end=True) is None


def test_progress_forgives_failures_but_not_forgotten_ends():
    count = RestartCount().after_failure(forgot_end=False).after_failure(forgot_end=True)
    assert count == RestartCount(failures=2, forgotten_ends=1, total=2)
    assert count.after_progress() == RestartCount(failures=0, forgotten_ends=1, total=2)
    assert RestartCount().after_progress() == RestartCount()


@pytest.mark.parametrize("command", [("kcl-mld-spark", "a.py"), ("env", "A=b", "/b/kcl-mld-spark")])
@pytest.mark.parametrize(("code", "is_final"), [(2, True), (3, True), (69, False), (70, False)])
def test_a_spark_child_that_says_correct_it_is_not_started_again(command, code, is_final):
    spark = replace(RESTART, argv=command)
    for config, expected in ((spark, is_final), (RESTART, False)):
        found = restart_pause_s(
            config, RestartCount(failures=1), random.Random(1), forgot_end=False, exit_code=code
        )
        assert (found is None) is expected
