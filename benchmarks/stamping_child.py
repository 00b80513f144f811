"""A child that writes down when it got records: a line ``<monotonic s> <worker>`` in its shard's file.

Of any daemon: it learns the shard from the protocol, and the worker from its environment.
"""

import json
import os
import sys
import time

from benchmarks.discard_child import ACTIONS


def main():
    """Answer until end of file; the stamps go to ``$BENCH_OUT/<shard>``."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    worker = os.environ["BENCH_WORKER"]
    for line in source:
        action = next(one for one in ACTIONS if one in line[:40])
        if action == b"initialize":
            file = f"{os.environ['BENCH_OUT']}/{json.loads(line)['shardId']}"
            stamps = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        if action == b"processRecords" and b'"record"' in line:
            os.write(stamps, f"{time.monotonic():.3f} {worker}\n".encode())
        if action in {b"processRecords", b"shutdownRequested"}:
            sink.write(b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}\n')
            sink.flush()
            source.readline()
        sink.write(b'{"action":"status","responseFor":"' + action + b'"}\n')
        sink.flush()


if __name__ == "__main__":
    main()
