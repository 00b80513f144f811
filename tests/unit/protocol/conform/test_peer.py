"""The daemon's side of one child: what it skips, and that it never waits for ever."""

from __future__ import annotations

import os
from contextlib import contextmanager

import pytest

from kcl_mld_protocol import Initialize
from kcl_mld_protocol.conform import peer
from kcl_mld_protocol.conform.peer import Peer

pytestmark = pytest.mark.process

SHARD = "shardId-000000000000"
START = Initialize(SHARD, "TRIM_HORIZON", 0)
STATUS = '{"action":"status","responseFor":"initialize"}'


@contextmanager
def peer_on(*command, timeout_s=20.0):
    opened = Peer(command, {}, timeout_s)
    try:
        yield opened
    finally:
        opened.kill()


def test_a_child_that_does_not_read_its_stdin_is_given_up():
    more_than_a_pipe_holds = Initialize(SHARD, "TRIM_HORIZON", 0, {"text": "x" * 1_000_000})
    with peer_on("sleep", "600", timeout_s=0.1) as deaf:
        exchange = deaf.send(more_than_a_pipe_holds)
    assert not exchange.answered
    assert exchange.evidence() == "the child did not read its stdin within 0.1 s"


def test_a_program_without_a_first_line_is_run_by_the_shell(tmp_path):
    program = tmp_path / "program"
    program.write_text(f"echo '{STATUS}'; read -r line\n")
    program.chmod(0o755)
    with peer_on(str(program)) as child:
        assert child.send(START).answered
    with pytest.raises(FileNotFoundError), peer_on(str(tmp_path / "no-program")):
        pass


def test_a_message_that_is_no_childs_is_skipped():
    program = f"""echo '{{"action":"leaseLost"}}'; echo '{STATUS}'; read -r line; read -r line"""
    with peer_on("sh", "-c", program) as odd:
        exchange = odd.send(START)
    assert exchange.answered
    assert (exchange.junk, exchange.checkpoints, exchange.surplus) == ([], [], b"")


def test_others_that_hold_the_pipes_of_a_dead_child_are_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(peer, "_DRAIN_S", 0.01)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The other one leaves the child's session before it opens the fifo, and ends when it is closed.
    other = f"setsid sh -c 'read -r line <{fifo}; echo bye' 2>/dev/null & wait"
    with peer_on("sh", "-c", other) as child:
        with fifo.open("w"):
            child.kill()
            assert child.wait_exit(0) == -9
            assert bytes(child.stdout) == b""
        monkeypatch.setattr(peer, "_DRAIN_S", 20.0)
        assert child.wait_exit(0) == -9
        assert bytes(child.stdout) == b"bye\n"
