"""Children that import boto3, pandas and pyarrow: executed one by one, and forked from a template.

Started as the daemon starts them, eight at a time. A child is ready when it has run its script and
waits for its first message. Memory is the PSS, in which pages that processes share are divided
among them; that of the template counts, too.
"""

import asyncio
import os
import pathlib
import subprocess
import sys
import time

from benchmarks.measure import compiled, shim_path
from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.prefork import PreforkLauncher
from kcl_mld.children.consuming.consumer_parts import ChildStarts
from kcl_mld.kernel.model.sequence import TRIM_HORIZON

PROGRAM = """\
import sys

import boto3
import pandas
import pyarrow

from amazon_kclpy import kcl

print("ready", flush=True)
sys.stdin.readline()
"""


def prefork_rows(_aws, folder, quick):
    """One row a number of children and way to start them."""
    program = folder / "prefork_child.py"
    program.write_text(PROGRAM)
    argv, env = [sys.executable, str(program)], compiled(folder)
    # Once before, so that no row pays for compiling its modules.
    subprocess.run(
        argv,
        check=True,
        env=os.environ | env | {"PYTHONPATH": shim_path()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    for count in (30,) if quick else (30, 200):
        for launcher in (ProcessLauncher(), PreforkLauncher()):
            if count == 30 or isinstance(launcher, PreforkLauncher):
                yield asyncio.run(one_row(argv, env, launcher, count))


async def one_row(argv, shared, launcher, count):
    """Start them, wait for all, look at their memory, and end them."""
    in_time = asyncio.Event()
    in_time.set()
    starts = ChildStarts(in_time)
    began = time.monotonic()
    children = []

    async def one(number):
        env = shared | {"KCL_SHARD_ID": f"shardId-{number:012}", "KCL_MLD_PID": "1"}
        async with starts.place(TRIM_HORIZON):
            child = await launcher.start(argv, env, lambda _line: None)
            children.append(child)
            await child.read()
        return time.monotonic() - began

    ready = sorted(await asyncio.gather(*map(one, range(count))))
    parents = {parent(child.pid) for child in children}
    templates = parents if isinstance(launcher, PreforkLauncher) else ()
    row = {
        "children": count,
        "started": "from a template" if templates else "as usual",
        "first ready, s": round(ready[0], 2),
        "last ready, s": round(ready[-1], 2),
        "MB each": round(sum(pss_mb(child.pid) for child in children) / count, 1),
        "MB of the template": round(sum(map(pss_mb, templates)), 1),
    }
    for child in children:
        await child.close_stdin()
        await child.wait()
    if templates:
        launcher.close()
    return row


def parent(pid):
    """Of a process."""
    return int(pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pss_mb(pid):
    """Memory of a process, its shared pages divided by those who share them."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) * 1024 / 1e6
