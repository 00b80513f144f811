"""CPU per MB of a daemon whose records are pushed, beside one that polls the same stream."""

import sys

from benchmarks.measure import daemon
from benchmarks.throughput import CHILDREN, IDLE_S, fill, one_run


def fan_out_rows(aws, folder, quick):
    """Yield one row a case; both daemons back to back on the same stream."""
    client = aws.client("kinesis")
    scale = 4 if quick else 1
    command = f"{sys.executable} {CHILDREN['discard']}"
    polling = f"idleTimeBetweenReadsInMillis = {int(IDLE_S * 1000)}"
    for shards, size, in_all in ((1, 1000, 100_000), (4, 1000, 200_000), (4, 100, 400_000)):
        records = in_all // scale
        stream = f"pushed-{shards}-{size}"
        fill(client, stream, shards, records, size)
        spent = {}
        for mode, extra in (("POLLING", polling), ("FANOUT", "")):
            run = daemon(
                aws,
                folder,
                stream=stream,
                app=f"{stream}-{mode}",
                child=command,
                extra=extra,
                mode=mode,
            )
            with run as running:
                spent[mode] = one_run(running, records)
        megabytes = records * size / 1e6
        pushed, polled = spent["FANOUT"], spent["POLLING"]
        yield {
            "case": f"{size} B, {shards} shard(s)",
            "fan-out, CPU s/100 MB": f"{pushed[0] / megabytes * 100:.2f}",
            "polling": f"{polled[0] / megabytes * 100:.2f}",
            "records/s": f"{records / pushed[1]:,.0f}",
            "polling rec/s": f"{records / polled[1]:,.0f}",
            "peak MiB": f"{pushed[2]:.0f}",
            "polling MiB": f"{polled[2]:.0f}",
        }
