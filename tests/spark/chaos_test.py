"""The test of the chaos runs; its runs are spread over files, so that workers share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.chaos import Chaos, cloud
from tests.spark.chaos_sinks import make, why_not

if TYPE_CHECKING:
    from pathlib import Path

#: A short storm; ``make chaos-spark`` has longer ones.
ROUNDS = 18


def judge(name: str, seed: int, tmp_path: Path) -> None:
    """Run one and convict it if a record is lost or doubled, or a process is left."""
    if (why := why_not(name)) is not None:
        pytest.skip(why)
    with cloud() as aws, make(name, tmp_path) as sink:
        verdict = Chaos(aws, sink, seed, tmp_path, rounds=ROUNDS).run()
    print(verdict)
    assert verdict.is_clean, (
        f"{verdict}\nreplay: python -m tests.spark.chaos --sink {name} --first-seed {seed} "
        f"--rounds {ROUNDS}"
    )
