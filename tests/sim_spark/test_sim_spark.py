"""Each record once, whatever happens to the processes: seeds of ``tests/sim_spark/world.py``."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from mld.spark.errors import SparkChildError
from mld.spark.parquet import chain, chain_files
from mld.spark.parquet.staging import Staging
from mld.spark.sinks.parquet_chain import ParquetChainSink
from tests.sim_spark.world import judge

pytestmark = pytest.mark.sim
KINDS = {"chain": 80, "delta": 60, "jdbc": 60}
PORTION = 20
PORTIONS = [
    (kind, range(begin, begin + PORTION))
    for kind, seeds in KINDS.items()
    for begin in range(0, seeds, PORTION)
]


@pytest.fixture
def memory_path(tmp_path):
    """A directory in memory where there is one: a world makes thousands of files."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        yield Path(directory)


def verdicts(kind, seeds, path):
    return [judge(kind, seed, path / str(seed)) for seed in seeds]


@pytest.mark.parametrize(
    ("kind", "seeds"), PORTIONS, ids=[f"{k}-{s.start}-{s.stop - 1}" for k, s in PORTIONS]
)
def test_every_record_comes_out_once_and_in_order(kind, seeds, memory_path):
    found = verdicts(kind, seeds, memory_path)
    for verdict in found:
        assert not verdict.violations, verdict.report()
    assert sum(verdict.crashes for verdict in found) > PORTION
    if kind != "delta":
        assert sum(verdict.staged_ahead for verdict in found) > PORTION
        assert sum(verdict.cut_along for verdict in found) > 10 * PORTION
        assert sum(verdict.fenced for verdict in found) > 0


@pytest.mark.parametrize("kind", ["path per range", "last sequence"])
def test_sinks_that_are_known_to_be_wrong_are_convicted(kind, memory_path):
    found = verdicts(kind, range(10), memory_path)
    assert sum("doubled" in " ".join(verdict.violations) for verdict in found) >= 5
    assert f'--kind "{kind}" --seed 0' in found[0].report()


def test_a_seed_gives_the_same_world_again(memory_path):
    first, second = (
        "\n".join(judge("chain", 3, path).trace).replace(str(path), "")
        for path in (memory_path / "a", memory_path / "b")
    )
    assert first == second
    assert first.count("committed") > 50


def _no_fence(monkeypatch):
    """A rename that makes room for itself."""
    real = chain_files.publish

    def publish(source, target):
        if target.exists():
            target.rename(f"{target}-old-{source.parent.parent.name}-{len(target.name)}")
        real(source, target)

    monkeypatch.setattr(chain_files, "publish", publish)
    monkeypatch.setattr(ParquetChainSink, "_is_ours", lambda *_: False)
    monkeypatch.setattr(ParquetChainSink, "_require_predecessor", lambda *_: None)
    monkeypatch.setattr(Staging, "probe_rename", lambda _: None)


def _too_much_removed(monkeypatch):
    """A compaction that takes the link behind its segment for replaced."""
    monkeypatch.setattr(
        chain, "_begins_in", lambda after, begin, end: after is None or after <= end
    )


@pytest.mark.parametrize("fault", [_no_fence, _too_much_removed])
def test_a_chain_with_a_planted_fault_is_convicted(fault, memory_path, monkeypatch):
    fault(monkeypatch)
    assert any(_is_convicted(seed, memory_path) for seed in range(30))


def _is_convicted(seed, path) -> bool:
    try:
        return bool(judge("chain", seed, path / str(seed)).violations)
    except (OSError, SparkChildError):  # noticed earlier than by the judge
        return True
