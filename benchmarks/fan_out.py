"""CPU per MB of a daemon whose records are pushed, beside one that polls the same stream.

An event holds 1 MB at most, an answer of GetRecords 10 MB. Each batch costs an exchange with the
child and a checkpoint, so polling is measured in batches of an event's size, too.
"""

import sys

from benchmarks.measure import cpu_s, daemon, rss_mib, wait_until
from benchmarks.throughput import CHILDREN, IDLE_S, fill

#: Records of 1 KB in an event of the embedded Kinesis.
OF_AN_EVENT = 1000


def steady_run(running, records):
    """(CPU s per record, peak MiB) of a daemon from the first quarter of the records to the last."""
    process, progress = running
    wait_until(lambda: progress.records() >= records // 4, 120, process)
    cpu, seen = cpu_s(process.pid), progress.records()
    wait_until(lambda: progress.records() >= records, 600, process)
    spent = (cpu_s(process.pid) - cpu) / (records - seen)
    return spent, rss_mib(process.pid, "VmHWM")


def fan_out_rows(aws, folder, quick):
    """Yield one row a case; the daemons back to back on the same stream."""
    client = aws.client("kinesis")
    command = f"{sys.executable} {CHILDREN['discard']}"
    idle = f"idleTimeBetweenReadsInMillis = {int(IDLE_S * 1000)}"
    ways = (
        ("fan-out", "FANOUT", ""),
        ("polling", "POLLING", f"maxRecords = {OF_AN_EVENT}\n{idle}"),
        ("polling, 10 MB", "POLLING", idle),
    )
    for shards in (1, 4):
        records = 40_000 if quick else 120_000
        stream = f"pushed-{shards}"
        fill(client, stream, shards, records, 1000)
        row = {"CPU s/100 MB": f"1 KB, {shards} shard(s)"}
        for number, (name, mode, extra) in enumerate(ways):
            run = daemon(
                aws,
                folder,
                stream=stream,
                app=f"{stream}-{number}",
                child=command,
                extra=extra,
                mode=mode,
            )
            with run as running:
                spent, peak = steady_run(running, records)
            row[name] = f"{spent * 1e5:.2f} ({peak:.0f} MiB)"
        yield row
