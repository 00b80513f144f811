"""The table of promises names tests that exist, and promises that are too small for a file."""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest

from kcl_mld.config.config import Config
from kcl_mld.spark.shard.session import ShardSession

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "tests" / "spark" / "README.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", README)))
ROWS = dict(re.findall(r"^\| (\d+) \| (.+) \|$", README, re.MULTILINE))


@cache
def names_in(path):
    """Names of the test functions of a file."""
    found = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return {each.name for each in found if isinstance(each, ast.FunctionDef)}


@pytest.mark.parametrize(("path", "name"), NAMED, ids=[name for _, name in NAMED])
def test_a_test_that_the_table_names_exists(path, name):
    assert name.startswith("test_")
    assert name in names_in(path)


def test_each_invariant_has_a_row_of_its_own_and_a_test():
    assert len(ROWS) >= 35
    assert sorted(ROWS, key=int) == list(ROWS)
    assert all("::test_" in row for row in ROWS.values())


def test_every_test_in_the_table_is_spelled_as_a_reference():
    assert len(re.findall(r"::test_", README)) == len(
        re.findall(r"`tests/[\w/]+\.py::test_\w+`", README)
    )


def test_a_shutdown_flushes_for_less_time_than_the_daemon_gives():
    """Invariant 12: or the daemon would kill a child that is about to checkpoint."""
    flush_s = inspect.signature(ShardSession).parameters["shutdown_s"].default
    grace_s = inspect.signature(Config).parameters["shutdown_grace_s"].default
    assert 0 < flush_s < grace_s
