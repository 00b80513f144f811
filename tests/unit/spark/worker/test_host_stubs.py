"""What a stub is told when it is to end."""

import json
import socket

from kcl_mld.spark.worker.host_stubs import ExitNotice, Stub


def test_a_message_that_is_longer_than_a_socket_takes_is_cut_and_arrives():
    """It was written in part otherwise, and the stub said that the host had been killed."""
    ours, its = socket.socketpair()
    with ours, its:
        Stub(ours, 1).dismiss(
            ExitNotice(2, "the table has no column x; it has " + "\u00fc" * 3_000_000)
        )
        said = b"".join(iter(lambda: its.recv(65_536), b""))
    found = json.loads(said)
    assert found["exit"] == 2
    assert found["message"].startswith("the table has no column x; it has")
