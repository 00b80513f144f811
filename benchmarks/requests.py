"""What an idle fleet of 3.x asks of DynamoDB, per lease and hour, by operation.

The server counts. Beside it stands what Java 3.5.1 asks by its periods, which no load changes.
"""

import contextlib
import sys
import time

from benchmarks.measure import daemon, wait_until
from benchmarks.throughput import CHILDREN, fill

#: Looks are frequent for a minute after the last change.
SETTLE_S = 75
WINDOW_S = 180
HOUR_S = 3600.0
#: (workers, leases).
FLEETS = ((2, 4), (1, 300))
EXTRA = """\
clientVersionConfig = CLIENT_VERSION_CONFIG_3X
idleTimeBetweenReadsInMillis = {idle_ms}
workerId = bench-{worker}
"""
#: An hour of Java 3.5.1 at default settings, whose periods are in milliseconds: renewals (3308) of
#: each lease; looks for assigned leases (9975) and metrics (30000) of each worker; two looks at the
#: lock (30000) of each follower; of the leader its looks (20000), audits (120000) and heartbeats.
JAVA_LEASE = HOUR_S / 3.308
JAVA_WORKER = HOUR_S / 9.975 + HOUR_S / 30
JAVA_FOLLOWER = 2 * HOUR_S / 30
JAVA_LEADER = HOUR_S / 20 + HOUR_S / 120 + HOUR_S / 30


def java(workers, leases):
    """Requests per lease and hour."""
    fleet = workers * JAVA_WORKER + (workers - 1) * JAVA_FOLLOWER + JAVA_LEADER
    return JAVA_LEASE + fleet / leases


def request_rows(aws, folder, quick):
    """Yield a row a fleet."""
    for workers, leases in FLEETS[: 1 if quick else None]:
        stream = f"requests-{workers}-{leases}"
        fill(aws.client("kinesis"), stream, leases, leases, 100)
        window_s = 60 if quick else WINDOW_S
        yield one_row(aws, folder, stream, workers, leases, window_s)


def one_row(aws, folder, stream, workers, leases, window_s):
    """Start the fleet, let it settle, count."""
    command = f"{sys.executable} -S {CHILDREN['discard']}"
    with contextlib.ExitStack() as stack:
        running = []
        for worker in range(workers):
            extra = EXTRA.format(worker=worker, idle_ms=1000 if leases < 100 else 10_000)
            place = folder / f"{stream}-{worker}"
            place.mkdir()
            one = daemon(aws, place, stream=stream, app=stream, child=command, extra=extra)
            running.append(stack.enter_context(one))
        for process, progress in running:
            share = leases // workers
            wait_until(lambda at=progress, want=share: at.started() >= want, 180, process)
        time.sleep(SETTLE_S)
        before, began = aws.control()["calls"], time.monotonic()
        time.sleep(window_s)
        hours = (time.monotonic() - began) / HOUR_S
        after = aws.control()["calls"]
    asked = {
        name.removeprefix("dynamodb."): (count - before.get(name, 0)) / leases / hours
        for name, count in sorted(after.items())
        if name.startswith("dynamodb.") and count > before.get(name, 0)
    }
    total, theirs = sum(asked.values()), java(workers, leases)
    return {
        "workers": workers,
        "leases": leases,
        "requests per lease and hour": f"{total:.0f}",
        "of which": ", ".join(f"{name} {count:.1f}" for name, count in asked.items()),
        "Java 3.5.1": f"{theirs:.0f}",
        "share": f"{total / theirs:.0%}",
    }
