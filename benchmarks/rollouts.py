"""How long a shard is read by nobody while a fleet in Kubernetes gets a new version, or shrinks.

Three workers with six shards, a record each every quarter of a second, read twice a second. The workers are real
processes; who starts, asks and ends them does what a Deployment and a kubelet do.
"""

import dataclasses
import itertools
import os
import time

from tests.process.daemon import Application, wait_until
from tests.process.rollouts import SHIPPED, Deployment, Traffic

WORKERS, SHARDS = 3, 6
#: Between the end of a change and the end of the watch: the leases may still move.
REST_S = 20.0
READS = {"idleTimeBetweenReadsInMillis": "500"}
OLD = {"clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"}
_NUMBERS = itertools.count(1)
_ONE_LESS = {"max_surge": 0, "max_unavailable": 1}

#: Name, what differs from the policy of packaging/kubernetes, workers afterwards, properties.
CASES = (
    ("rolling update, maxSurge 1, maxUnavailable 0", {}, WORKERS, {}),
    ("the same, minReadySeconds 20", {"min_ready_s": 20.0}, WORKERS, {}),
    ("the same, preStop sleep 5 s", {"pre_stop_s": 5.0}, WORKERS, {}),
    ("rolling update, maxSurge 0, maxUnavailable 1", _ONE_LESS, WORKERS, {}),
    (
        "the same, minReadySeconds 20",
        {**_ONE_LESS, "min_ready_s": 20.0},
        WORKERS,
        {},
    ),
    ("rolling update, maxSurge 3, maxUnavailable 0", {"max_surge": 3}, WORKERS, {}),
    ("Recreate", {"recreates": True}, WORKERS, {}),
    ("scale-in from 3 to 2", {}, 2, {}),
    ("scale-in from 3 to 1", {}, 1, {}),
    ("2.x: rolling update, maxSurge 1, maxUnavailable 0", {}, WORKERS, OLD),
    ("2.x: rolling update, maxSurge 0, maxUnavailable 1", _ONE_LESS, WORKERS, OLD),
    ("2.x: scale-in from 3 to 2", {}, 2, OLD),
)


def rehearse(app, policy, workers):
    """Change a fleet; its report, the seconds that the change took, and the slowest stop."""
    deployment = Deployment(app, policy, WORKERS)
    with Traffic(app) as traffic:
        deployment.start()
        runs = lambda: [pod.run for pod in (*deployment.ended, *deployment.pods)]  # noqa: E731
        wait_until(lambda: traffic.is_read(runs()), "all shards are read")
        time.sleep(REST_S)
        before = traffic.report(runs(), 0, 0).moves
        began, since = time.monotonic(), time.time()
        if workers == WORKERS:
            deployment.roll_out()
        else:
            deployment.scale_in(workers)
        took = time.monotonic() - began
        time.sleep(REST_S)
        until = time.time()
    traffic.wait_for_all(runs)
    report = traffic.report(runs(), since, until)
    slowest = max(pod.stop_s or 0.0 for pod in deployment.ended)
    codes = {pod.exit_code for pod in deployment.ended}
    deployment.stop()
    return dataclasses.replace(report, moves=report.moves - before), took, slowest, codes


def rollout_rows(aws, folder, quick):
    """A row for each way."""
    for name, changes, workers, properties in CASES[:: 3 if quick else 1]:
        app = Application(aws, f"roll-{next(_NUMBERS)}", folder, **READS, **properties)
        app.create_stream(SHARDS)
        policy = dataclasses.replace(SHIPPED, **changes)
        try:
            report, took, slowest, codes = rehearse(app, policy, workers)
        finally:
            app.kill_all()
        yield {
            "change": name,
            "took s": f"{took:.0f}",
            "longest silence of a shard, s": f"{report.silence_s:.1f}",
            "moves of shards": report.moves,
            "records": report.records,
            "lost": report.lost,
            "twice": report.twice,
            "slowest stop, s": f"{slowest:.1f}",
            "exit codes": ", ".join(map(str, sorted(codes))),
            "load": f"{os.getloadavg()[0]:.0f}",
        }
