"""Tests that share a server are run by one worker."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOUR = """\
import os, pytest

@pytest.fixture
def spark_server(): pass

@pytest.mark.parametrize("number", range(4))
def test_with(spark_server, number):
    open(os.environ["PYTEST_XDIST_WORKER"] + ".txt", "a").write("x")
"""


def test_one_worker_runs_all_tests_that_need_one_server(tmp_path):
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_four.py").write_text(FOUR)
    plugins = ("-p", "no:randomly", "-p", "tests.cpu_report")
    command = [sys.executable, "-m", "pytest", "-q", "-n2", "--dist=loadgroup", *plugins]
    ended = subprocess.run(
        command,
        check=False,
        cwd=tmp_path,
        env={"PATH": "/bin:/usr/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert "4 passed" in ended.stdout
    assert "test_four.py::test_with[3]" in ended.stdout.partition("dearest tests")[2]
    (written,) = tmp_path.glob("*.txt")
    assert written.read_text() == "xxxx"
