"""What the judge of several children finds, and what their programs find of each other."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.children.adapters.kclpy_path import SHIM
from tests.process.daemon import wait_until
from tests.process.siblings import DATA, Sibling, Sight, faults

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

PUT = {"a": ["a/0", "a/1", "a/2"], "b": ["b/0"]}


def saw(pid: int, *texts: str, at_s: float = 0.0, confirmed: int = -1) -> Sibling:
    """A process; the position of a record is its number in its key."""
    sights = [
        Sight(at_s + n / 10, (int(text[2:]), 0), text[0], text) for n, text in enumerate(texts)
    ]
    return Sibling(pid, "shard", "0", "2", [], [], [], sights, (confirmed, 0))


WHOLE = [saw(1, "a/0", "a/1", "a/2"), saw(2, "b/0")]


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (WHOLE, []),
        ([saw(1, "a/0", "a/1", "a/2")], ["lost: b/0"]),
        ([*WHOLE, saw(3, "b/0", at_s=9)], ["b/0: again by 3 after 2"]),
        (
            [saw(1, "a/0", "a/2", "a/1"), WHOLE[1]],
            ["1: a has 2 after 0", "1: a has 1 after 2", "a: 2 before 1"],
        ),
        (
            [saw(1, "a/1", "a/2"), saw(3, "a/0", at_s=9), WHOLE[1]],
            ["a: 1 before 0"],
        ),
        # A process that was killed alone: what it did not confirm comes again, and no more.
        ([saw(7, "a/0", "a/1", confirmed=0), saw(8, "a/1", "a/2", at_s=9), WHOLE[1]], []),
        (
            [saw(7, "a/0", "a/1", confirmed=1), saw(8, "a/1", "a/2", at_s=9), WHOLE[1]],
            ["a/1: again by 8 though 7 confirmed it"],
        ),
        # One of a worker that was killed: what it confirmed may lie behind the mark.
        ([saw(9, "a/0", "a/1", confirmed=1), saw(8, "a/1", "a/2", at_s=9), WHOLE[1]], []),
    ],
)
def test_the_judge_finds_what_is_wrong(found: list[Sibling], wrong: list[str]) -> None:
    assert sorted(faults(PUT, found, killed=[7], killed_workers=[9])) == sorted(wrong)


def test_the_judge_says_that_two_processes_had_a_key() -> None:
    one = saw(1, "a/0", "a/1", "a/2")
    one.entries.append({"saw": "doubled", "key": "a"})
    assert faults(PUT, [one, WHOLE[1]]) == ["1: two living children for a"]


def test_two_programs_with_one_key_find_each_other(tmp_path: Path) -> None:
    record = {
        "action": "record",
        "partitionKey": "a",
        "data": base64.b64encode(b"a/0").decode(),
        "approximateArrivalTimestamp": 1500000000000,
        "sequenceNumber": "5",
        "subSequenceNumber": 0,
    }
    messages: list[dict[str, Any]] = [
        {
            "action": "initialize",
            "shardId": "shardId-0",
            "sequenceNumber": "LATEST",
            "subSequenceNumber": 0,
        },
        {"action": "processRecords", "records": [record], "millisBehindLatest": 0},
    ]
    lines = "".join(f"{json.dumps(message)}\n" for message in messages)
    folders = {"JOURNAL": str(tmp_path), "LOCKS": str(tmp_path), "PYTHONPATH": str(SHIM)}
    programs = [
        subprocess.Popen(
            [sys.executable, str(DATA / "kclpy" / "sibling.py"), "timer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=os.environ | folders,
            text=True,
        )
        for _ in range(2)
    ]

    def seen() -> list[str]:
        files = tmp_path.glob("journal-*")
        return [json.loads(line)["saw"] for f in files for line in f.read_text().splitlines()]

    try:
        for program in programs:
            assert program.stdin is not None
            program.stdin.write(lines)
            program.stdin.flush()
        wait_until(lambda: seen().count("records") == 2, "both have the record")
        assert seen().count("doubled") == 1
    finally:
        for program in programs:
            program.kill()
            program.communicate()
