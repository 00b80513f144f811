"""Processes that commit to one Iceberg table, and own the same shards, under kill -9."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress

import pytest

from tests.spark.chaos_sinks import iceberg_count
from tests.unit.spark.iceberg_kit import NAME, catalog_in, has_row, make_table, marked, rows_in
from tests.unit.spark.table_kit import BASE, shard

pytestmark = pytest.mark.proof

SEEDS = int(os.environ.get("KCL_MLD_ICEBERG_SEEDS", "1"))
FIRST_SEED = int(os.environ.get("KCL_MLD_ICEBERG_FIRST_SEED", "1"))
KILLS, SHARDS = 4, 4


class Worker:
    """A process, and what it has said of its commits."""

    def __init__(self, folder, rng):
        # Two processes believe that they own some of the shards.
        shards = ",".join(map(str, sorted(rng.sample(range(SHARDS), 3))))
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.spark.iceberg_worker",
                str(folder),
                str(rng.randrange(10**6)),
                shards,
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout.readline() == "begun\n"

    def commits(self, count):
        """Wait for some; what became of them."""
        return [self.process.stdout.readline().strip() for _ in range(count)]

    def kill(self):
        """And what it had said before."""
        self.process.send_signal(signal.SIGKILL)
        with suppress(OSError):
            found = self.process.stdout.read()
        self.process.wait()
        self.process.stdout.close()
        return found.split("\n")


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_each_row_is_there_once_as_two_readers_count(tmp_path, seed):
    rng = random.Random(seed)
    folder = tmp_path / "t"
    catalog = catalog_in(folder)
    make_table(catalog)
    said: Counter[str] = Counter()
    workers = [Worker(folder, rng) for _ in range(2)]
    try:
        for _ in range(KILLS):
            victim = rng.randrange(2)
            said.update(workers[victim].commits(2))
            time.sleep(rng.uniform(0, 0.15))  # somewhere in the next commit
            said.update(workers[victim].kill())
            workers[victim] = Worker(folder, rng)
        said.update(workers[0].commits(2))
    finally:
        for each in workers:
            said.update(each.kill())
    wanted: Counter[tuple[str, int]] = Counter()
    for number in range(SHARDS):
        position = marked(catalog).mark(shard(number))
        last = 0 if position is None else position.sequence - BASE
        wanted.update((str(number), n) for n in range(1, last + 1) if has_row(n))
    print(said)
    assert said["stands"] > KILLS
    assert sum(wanted.values()) > KILLS
    assert rows_in(catalog) == wanted
    location = catalog.load_table(NAME).metadata_location
    assert iceberg_count(location, "true") == sum(wanted.values())
    catalog.close()
