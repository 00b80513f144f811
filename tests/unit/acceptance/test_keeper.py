"""The keeper ends its worker when the command has ended, and ends as its worker does."""

import os
import signal
import subprocess
import sys

KEEPER = (sys.executable, "-m", "kcl_mld.acceptance.keeper", sys.executable, "-c")
#: Says on stderr when it is there, and when it is told to stop.
WORKER = """
import os, signal, sys, time
def stop(*_):
    os.write(2, b"told to stop\\n")
    sys.exit(3)
signal.signal(signal.SIGTERM, stop)
os.write(2, b"there\\n")
time.sleep(600)
"""


def kept(program):
    keeper = subprocess.Popen(
        [*KEEPER, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    return keeper, int(keeper.stdout.readline())


def test_at_the_end_of_the_command_the_worker_is_told_to_stop():
    keeper, pid = kept(WORKER)
    with keeper:
        assert keeper.stderr.readline() == b"there\n"
        os.kill(pid, 0)
        keeper.stdin.close()
        assert keeper.stderr.readline() == b"told to stop\n"
        assert keeper.wait(60) == 3


def test_a_killed_worker_gives_137():
    keeper, pid = kept(WORKER)
    with keeper:
        assert keeper.stderr.readline() == b"there\n"
        os.kill(pid, signal.SIGKILL)
        assert keeper.wait(60) == 137


def test_what_the_worker_prints_is_no_process_id():
    keeper, _ = kept("print('hello'); raise SystemExit(4)")
    with keeper:
        assert keeper.wait(60) == 4
        assert keeper.stdout.read() == b""
        assert keeper.stderr.read() == b"hello\n"
