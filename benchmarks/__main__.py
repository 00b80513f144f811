"""``python -m benchmarks [--quick] [PART ...]``: everything as one table a part.

Parts: startup, idle, throughput, renewals, events, fan-out, failover. Machines are shared and noisy: read the ratios.
"""

import sys

from benchmarks.events import event_rows
from benchmarks.failover import failover_rows
from benchmarks.fan_out import fan_out_rows
from benchmarks.idle import idle_rows
from benchmarks.measure import workspace
from benchmarks.renewals import renewal_rows
from benchmarks.startup import startup_rows
from benchmarks.throughput import rows as throughput_rows
from mld.local.embedded import EmbeddedAws

PARTS = {
    "startup": startup_rows,
    "idle": idle_rows,
    "throughput": throughput_rows,
    "renewals": renewal_rows,
    "events": event_rows,
    "fan-out": fan_out_rows,
    "failover": failover_rows,
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
    quick = "--quick" in sys.argv
    wanted = [one for one in sys.argv[1:] if not one.startswith("-")] or list(PARTS)
    for part in wanted:
        with workspace() as folder, EmbeddedAws() as aws:
            show(part, PARTS[part](aws, folder, quick))


if __name__ == "__main__":
    main()
