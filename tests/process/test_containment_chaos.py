"""kill -9 anywhere in halving, leases that move: each record is processed or dead-lettered."""

from __future__ import annotations

import base64
import itertools
import os
import random
import signal
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import shard_id, wait_until
from tests.process.test_daemon_containment import POISONED, contained, letters, processed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.process.daemon import Application, Running

pytestmark = [pytest.mark.process, pytest.mark.proof]

KILLS = 12
RECORDS = 120
POISON = {str(number) for number in (3, 4, 29, 30, 31, 58, 77, 90, 118, 119)}


@pytest.mark.parametrize(
    ("checkpoints", "bisects", "seed"),
    [
        ("checkpoint", "true", 1),
        ("seldom", "true", 2),
        ("never", "true", 3),
        ("seldom", "false", 4),
    ],
)
def test_each_record_is_processed_or_a_dead_letter_whoever_is_killed(
    new_app: Callable[..., Application],
    tmp_path: Path,
    checkpoints: str,
    bisects: str,
    seed: int,
) -> None:
    rng, names = random.Random(seed), itertools.count(1)
    app = contained(
        new_app,
        tmp_path,
        failoverTimeMillis="1500",
        leaseAssignmentIntervalMillis="500",
        maxRecords="17",
        bisectBatchOnFailure=bisects,
        deadLetterLimit="1000",
        deadLetterRecords="true",
    )
    workers: dict[str | None, Running] = {}

    def start() -> Running:
        program = (sys.executable, str(POISONED), "exit", ",".join(sorted(POISON)), checkpoints)
        name = f"w{next(names)}"
        workers[name] = app.start(executable=program, worker=name)
        return workers[name]

    living = [start(), start()]
    put: list[str] = []
    for _ in range(KILLS):
        put += app.put(RECORDS // KILLS, "key")
        time.sleep(rng.uniform(0.5, 3.0))  # where it is then is what differs
        victim = living.pop(rng.randrange(2))
        os.kill(victim.pid, signal.SIGKILL)
        living.append(start())

    def given_up() -> set[str]:
        return {
            base64.b64decode(record["data"]).decode()
            for letter in letters(tmp_path)
            for record in letter["records"]
        }

    def missing() -> set[str]:
        return set(put) - set(processed(*workers.values())) - given_up()

    wait_until(
        lambda: not missing(), f"all are processed or given up: {living[-1].output[-3000:]}", 300
    )
    if bisects == "true":
        assert given_up() <= POISON
        wait_until(lambda: given_up() == POISON, "all poison is given up", 300)
    assert not POISON & set(processed(*workers.values()))

    def has_a_position() -> bool:
        """The last owner may have to read again what nobody has checkpointed."""
        row = app.items()[shard_id(0)]
        owner = [run for run in living if run is workers.get(row.get("leaseOwner"))]
        return row["checkpoint"].isdecimal() or bool(processed(*owner))

    wait_until(has_a_position, "a checkpoint is stored, or will be at the stop")
    for run in living:
        assert run.stop() == 0, run.output
    row = app.items()[shard_id(0)]
    assert row["checkpoint"].isdecimal()
