"""A child that reads nothing: it answers every line at once and counts records by their marker."""

import os
import sys

ACTIONS = (b"initialize", b"processRecords", b"leaseLost", b"shardEnded", b"shutdownRequested")


def main():
    """Answer until end of file; progress goes to ``$BENCH_OUT/<pid>``."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    progress = os.open(f"{os.environ['BENCH_OUT']}/{os.getpid()}", os.O_CREAT | os.O_WRONLY)
    seen = 0
    for line in source:
        action = next(one for one in ACTIONS if one in line[:40])
        if action == b"processRecords":
            seen += line.count(b'"record"')
            sink.write(b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}\n')
            sink.flush()
            source.readline()
        os.pwrite(progress, b"%12d" % seen, 0)
        sink.write(b'{"action":"status","responseFor":"' + action + b'"}\n')
        sink.flush()


if __name__ == "__main__":
    main()
