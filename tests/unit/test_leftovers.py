"""The plugin that keeps tests from changing the process that they run in."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.leftovers import Snapshot

ROOT = Path(__file__).resolve().parents[2]


def changed_logger():
    logging.getLogger("mld.of.a.test").setLevel(logging.ERROR)


def changed_handlers():
    logging.getLogger().addHandler(logging.StreamHandler())


def changed_raising():
    logging.raiseExceptions = False


def changed_disabling():
    logging.disable(logging.ERROR)


def changed_directory():
    os.chdir("/")


def changed_environment():
    os.environ["KCL_MLD_OF_A_TEST"] = "x"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (changed_logger, "the logger mld.of.a.test is (40, "),
        (changed_handlers, "the logger root is ("),
        (changed_raising, "logging.raiseExceptions is False"),
        (changed_disabling, "logging.disable(40)"),
        (changed_directory, "the working directory is /, was "),
        (changed_environment, "the variable KCL_MLD_OF_A_TEST is changed"),
    ],
)
def test_each_kind_of_change_is_told_and_put_back(change, said):
    before = Snapshot.take()
    change()
    (difference,) = before.differences(Snapshot.take())
    assert difference.startswith(said)
    before.restore()
    assert before.differences(Snapshot.take()) == []


def test_a_library_that_is_imported_by_a_test_leaves_nothing():
    logger = logging.getLogger("botocore.of.a.test")
    before = Snapshot.take()
    logger.addHandler(logging.NullHandler())
    assert before.differences(Snapshot.take()) == []
    before.restore()
    assert len(logger.handlers) == 1


def run_alone(folder):
    """The tests of ``test_two.py``, in their order, in a process with the plugin."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.leftovers", "-p", "no:randomly"]
    command += ["-p", "no:cacheprovider", "test_two.py"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command, check=False, cwd=folder, env=environ, capture_output=True, text=True, timeout=60
    )


def test_a_test_that_leaves_something_behind_fails_and_the_next_one_does_not(tmp_path):
    (tmp_path / "test_two.py").write_text(
        "import logging, os\n"
        "def test_leaky(): logging.getLogger('mld').setLevel('ERROR'); os.environ['LEFT'] = '1'\n"
        "def test_next(): assert logging.getLogger('mld').level == 0 and 'LEFT' not in os.environ\n"
    )
    ended = run_alone(tmp_path)
    assert "2 passed, 1 error" in ended.stdout
    assert "ERROR at teardown of test_leaky" in ended.stdout
    assert "this test leaves behind: the variable LEFT is changed; the logger mld" in ended.stdout


def test_a_library_whose_loggers_format_as_they_like_changes_no_record_of_a_test(tmp_path):
    """Pyspark has such loggers; pytest gives them its own handlers."""
    (tmp_path / "test_two.py").write_text(
        "import logging\n"
        "class Odd(logging.Logger):\n"
        "    def addHandler(self, handler):\n"
        "        handler.format = str\n"
        "        super().addHandler(handler)\n"
        "logging.setLoggerClass(Odd)\n"
        "logging.getLogger('odd').propagate = False\n"
        "logging.setLoggerClass(logging.Logger)\n"
        "def test_next(caplog):\n"
        "    logging.getLogger('x').warning('told')\n"
        "    assert [record.message for record in caplog.records] == ['told']\n"
    )
    assert "1 passed" in run_alone(tmp_path).stdout
