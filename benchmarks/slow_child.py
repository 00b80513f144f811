"""A child that takes 5 ms a record, as one that calls a slow service, and checkpoints each batch.

It counts records in ``$BENCH_OUT/<index of the child>-<pid>``. Once there is a file
``$BENCH_OUT.done``, it takes no time.
"""

import os
import pathlib
import sys
import time

from benchmarks.discard_child import ACTIONS

RECORD_S = 0.005


def main():
    """Answer until end of file."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    out = os.environ["BENCH_OUT"]
    done = pathlib.Path(f"{out}.done")
    name = f"{os.environ.get('KCL_MLD_CHILD', '0')}-{os.getpid()}"
    progress = os.open(f"{out}/{name}", os.O_CREAT | os.O_WRONLY)
    seen = 0
    for line in source:
        action = next(one for one in ACTIONS if one in line[:40])
        if action == b"processRecords":
            due = time.monotonic()
            for _ in range(line.count(b'"record"')):
                due += RECORD_S  # what wakes late is made up for
                if not done.exists():
                    time.sleep(max(0.0, due - time.monotonic()))
                seen += 1
                os.pwrite(progress, b"%12d" % seen, 0)
            sink.write(b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}\n')
            sink.flush()
            source.readline()
        os.pwrite(progress, b"%12d" % seen, 0)
        sink.write(b'{"action":"status","responseFor":"' + action + b'"}\n')
        sink.flush()


if __name__ == "__main__":
    main()
