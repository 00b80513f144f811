"""The power is cut at every call of ``fsync``: what the disk then has is a whole table.

What was synced is there. Of the rest the kernel may have written anything by itself: here each name
and each content that nobody synced survives by a draw, a content whole or not at all.
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.unit.spark.table_kit import BASE, batch, expected, open_sink, rows_in, shard, write

SHARDS, ENDS = 2, (3, 5, 8)


class PowerCut(BaseException):
    """Nothing runs any more."""


class Disk:
    """What is durable below a directory.

    Args:
        root: it is durable itself.
        cut_at: the call of ``fsync``, from 1, that never happens; None = all do.
    """

    def __init__(self, root: Path, cut_at: int | None) -> None:
        self.root, self.cut_at = root, cut_at
        self.calls = 0
        self.contents: set[Path] = set()
        self.names: set[Path] = set()
        self._fsync = os.fsync

    def fsync(self, descriptor: int) -> None:
        self.calls += 1
        if self.calls == self.cut_at:
            raise PowerCut
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path.is_dir():
            self.names |= set(path.iterdir())
        else:
            self.contents.add(path)

    def after_the_cut(self, target: Path, seed: int) -> None:
        """Copy what is there when the power is back."""
        dice = random.Random(seed)
        target.mkdir()
        for path in sorted(self.root.rglob("*")):
            there = target / path.relative_to(self.root)
            if not there.parent.is_dir() or (path not in self.names and dice.random() < 0.5):
                continue
            if path.is_dir():
                there.mkdir()
            elif path in self.contents or dice.random() < 0.5:
                shutil.copyfile(path, there)
            else:
                there.touch()


def work(root, told):
    """Micro-batches of two shards from their marks on.

    Args:
        root: of the table.
        told: is given the end up to which each shard stands.

    Returns:
        the marks with which it began.
    """
    sink, begun = open_sink(root), {}
    for number in range(SHARDS):
        mark = sink.mark(shard(number))
        begun[number] = 0 if mark is None else mark.sequence - BASE
    told |= begun
    for end in ENDS:
        batches = [batch(shard(n), told[n], end) for n in range(SHARDS) if told[n] < end]
        if batches:
            assert set(write(sink, *batches)) == {"stands"}
            told.update(dict.fromkeys(range(SHARDS), end))
    return begun


def run(tmp_path, monkeypatch, cut_at):
    root, told = tmp_path / f"cut-{cut_at}", {}
    root.mkdir()
    disk = Disk(root, cut_at)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", disk.fsync)
        try:
            work(root / "table", told)
        except PowerCut:
            return disk, told, True
    return disk, told, False


@pytest.mark.parametrize("part", range(4))
def test_what_stood_is_there_and_nothing_is_doubled(tmp_path, monkeypatch, part):
    cut_at = part + 1
    while True:
        disk, told, is_cut = run(tmp_path, monkeypatch, cut_at)
        if not is_cut:
            break
        for seed in range(2):
            target = tmp_path / f"after-{cut_at}-{seed}"
            disk.after_the_cut(target, seed)
            where = f"cut at {cut_at}, seed {seed}"
            again = dict(told)  # where the checkpoints are: they follow what stood
            begun = work(target / "table", again)
            assert all(begun[n] >= told.get(n, 0) for n in range(SHARDS)), where
            whole = expected(**{f"s{n}": ENDS[-1] for n in range(SHARDS)})
            assert rows_in(target / "table") == whole, where
            shutil.rmtree(target)
        cut_at += 4
    assert cut_at > 20, "the work is not synced"
