"""How often a child that waits shows that it lives, and that it stops when it need not."""

import threading

import pytest

from kcl_mld.spark.keep_alive import KEEP_ALIVE, KeepAlive, interval_s
from kcl_mld_protocol import ChildConnection, Initialize, encode

WAIT_S = 120.0


def test_the_sign_is_the_protocols_keep_alive():
    connection = ChildConnection()
    connection.receive_data(encode(Initialize("shardId-0", "TRIM_HORIZON", None)))
    connection.next_event()
    assert connection.keep_alive() == KEEP_ALIVE


@pytest.mark.parametrize(
    ("environ", "written", "expected_s"),
    [
        ({"KCL_MLD_CAPABILITIES": "tick", "KCL_MLD_TIMEOUT_S": "1"}, None, 0.25),
        ({"KCL_MLD_CAPABILITIES": "tick", "KCL_MLD_TIMEOUT_S": "4.0"}, None, 1.0),
        ({"KCL_MLD_CAPABILITIES": "tick", "KCL_MLD_TIMEOUT_S": "3600"}, None, 5.0),
        ({"KCL_MLD_CAPABILITIES": "tick", "KCL_MLD_TIMEOUT_S": "8"}, "2", 2.0),
        ({"KCL_MLD_CAPABILITIES": "tick"}, None, 5.0),
        ({}, "2", 0.5),
        ({}, "junk", 1.0),
        ({}, "0", 1.0),
        ({}, None, 1.0),
    ],
)
def test_a_time_out_has_room_for_four_signs(environ, written, expected_s):
    assert interval_s(environ, written) == expected_s


def test_signs_are_said_until_the_wait_is_over():
    said = threading.Semaphore(0)
    with KeepAlive(said.release, 0.001, WAIT_S) as keep_alives:
        for _ in range(3):
            assert said.acquire(timeout=WAIT_S)
    assert not keep_alives._thread.is_alive()


def test_signs_end_when_the_wait_is_too_long_or_nobody_listens():
    def broken():
        said.release()
        raise BrokenPipeError

    said = threading.Semaphore(0)
    with KeepAlive(broken, 0.001, WAIT_S) as keep_alives:
        assert said.acquire(timeout=WAIT_S)
        keep_alives._thread.join(WAIT_S)
        assert not keep_alives._thread.is_alive()
    with KeepAlive(said.release, 0.001, 0.0) as keep_alives:
        keep_alives._thread.join(WAIT_S)
        assert not keep_alives._thread.is_alive()
    assert not said.acquire(blocking=False)
