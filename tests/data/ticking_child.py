"""A child that wants ticks: ``kcl_mld_protocol.child``.

Every line of the conversation goes to ``JOURNAL/lines-PID.txt`` in the form of the transcripts.
"""

import os
import sys
import time
from pathlib import Path

from kcl_mld_protocol import child


class Recorder:
    """The two pipes, and what passes through them."""

    def __init__(self):
        self._began = time.monotonic()
        self._log = open(Path(os.environ["JOURNAL"]) / f"lines-{os.getpid()}.txt", "ab")  # noqa: SIM115
        self._stdin = os.fdopen(os.dup(0), "rb")
        self._stdout = os.fdopen(os.dup(1), "wb")

    def _note(self, direction, line):
        at_s = time.monotonic() - self._began
        self._log.write(b"%.6f %s %s\n" % (at_s, direction, line.rstrip(b"\n")))
        self._log.flush()

    def readline(self):
        line = self._stdin.readline()
        self._note(b">>" if line else b"!!", line or b"EOF on parent >>")
        return line

    def write(self, data):
        self._note(b"<<", data)
        return self._stdout.write(data)

    def flush(self):
        self._stdout.flush()


class Writer(child.RecordProcessor):
    """Checkpoints each batch."""

    tick_s = 0.3

    def process_records(self, process_records_input):
        if process_records_input.records:
            process_records_input.checkpointer.checkpoint()


if __name__ == "__main__":
    print("capabilities", sorted(child.capabilities(os.environ)), file=sys.stderr)
    pipes = Recorder()
    child.run(Writer(), pipes, pipes)
