"""Seeds that failed once, and the promise that a seed means one run everywhere."""

import os
import subprocess
import sys

import pytest

from tests.sim import run
from tests.sim.chunks import acquit
from tests.sim.run import regressions

pytestmark = pytest.mark.sim

_DIGESTS = """
from tests.sim.fleet import judge
for seed in (3, 4, 64):
    print(judge(seed).digest)
"""


@pytest.mark.parametrize("seed", regressions() or [0])
def test_a_seed_that_failed_once_passes(seed):
    acquit([seed])


def test_a_seed_is_the_same_run_in_every_process():
    outputs = {
        subprocess.run(
            [sys.executable, "-c", _DIGESTS],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for hash_seed in ("0", "4711")
    }
    assert len(outputs) == 1
    assert len(outputs.pop().split()) == 3


def test_the_command_runs_what_failed_once_and_then_its_seeds_and_counts(capsys, monkeypatch):
    monkeypatch.setattr(run, "regressions", lambda: [3])  # all of them are run above
    assert run.main(["--seeds", "2", "--first-seed", "5", "--jobs", "1"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 seeds, ")
    assert " 0 failed" in said


def test_the_command_prints_every_row_of_a_trace(capsys):
    assert run.main(["--seeds", "1", "--first-seed", "5", "--trace"]) == 0
    assert "START" in capsys.readouterr().out
