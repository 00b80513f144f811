"""Everything as one table a part. Machines are shared and noisy: read the ratios."""

import argparse

from benchmarks.calm_minute import calm_rows
from benchmarks.children_per_shard import children_rows
from benchmarks.events import event_rows
from benchmarks.failover import failover_beside_java, failover_rows
from benchmarks.fan_out import fan_out_rows
from benchmarks.idle import idle_rows
from benchmarks.measure import workspace
from benchmarks.metrics import metrics_rows
from benchmarks.prefork import prefork_rows
from benchmarks.python_child import python_child_beside_java, python_child_rows
from benchmarks.renewals import renewal_rows
from benchmarks.requests import request_rows
from benchmarks.rollouts import rollout_rows
from benchmarks.scale import scale_beside_java, scale_rows
from benchmarks.startup import startup_rows
from benchmarks.throughput import rows as throughput_rows
from kcl_mld.local.embedded import EmbeddedAws

PARTS = {
    "startup": startup_rows,
    "idle": idle_rows,
    "prefork": prefork_rows,
    "scale": scale_rows,
    "throughput": throughput_rows,
    "python-child": python_child_rows,
    "children-per-shard": children_rows,
    "renewals": renewal_rows,
    "metrics": metrics_rows,
    "events": event_rows,
    "fan-out": fan_out_rows,
    "failover": failover_rows,
    "rollouts": rollout_rows,
    "requests": request_rows,
    "calm": calm_rows,
}
JAVA_PARTS = {
    "failover": failover_beside_java,
    "scale": scale_beside_java,
    "python-child": python_child_beside_java,
}


def show(title, rows):
    """Print rows as they come, with the first row's keys as the heading."""
    print(f"\n## {title}")
    heading = None
    for row in rows:
        if heading is None:
            heading = list(row)
            print("| " + " | ".join(heading) + " |")
            print("|" + "---|" * len(heading))
        print("| " + " | ".join(str(row[key]) for key in heading) + " |", flush=True)


def main():
    """Run the parts that are named, or all."""
    arguments = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    arguments.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    arguments.add_argument("--quick", action="store_true", help="smaller cases, shorter windows")
    arguments.add_argument(
        "--java",
        action="store_true",
        help=f"Java's daemons beside ours in {' and '.join(JAVA_PARTS)}; "
        "python -m tests.peer.fetched fetches them",
    )
    asked = arguments.parse_args()
    parts = PARTS | (JAVA_PARTS if asked.java else {})
    for unknown in set(asked.parts) - set(PARTS):
        arguments.error(f"no part {unknown!r}; there are {', '.join(PARTS)}")
    for part in asked.parts or PARTS:
        with workspace() as folder, EmbeddedAws() as aws:
            show(part, parts[part](aws, folder, asked.quick))


if __name__ == "__main__":
    main()
