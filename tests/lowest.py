"""Daemon and PySpark child with the oldest libraries that ``setup.cfg`` allows: ``make test-lowest``.

Each ``name>=version`` of what every installation needs, and of the extras below, is pinned to that
version, in an environment of its own in ``.cache``; all others are the newest that go with them. So
a lower bound that does not work is found, and is to be raised.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Extras whose lower bounds are taken at their word.
EXTRAS = ("local", "spark", "postgres")
#: What shows that the libraries do what daemon and child ask of them: commands, requests, messages,
#: the embedded AWS, whole lives; sessions, plans, Arrow, Delta.
TESTS = (
    "tests/unit/cli/test_main.py",
    "tests/unit/aws",
    "tests/unit/retrieval",
    "tests/unit/local/test_feeding.py",
    "tests/process/test_daemon_life.py",
    "tests/process/test_new_fleet.py",
    "tests/unit/spark",
    "tests/spark/test_merge_sink.py",
    "tests/spark/test_outputs.py",
    "tests/spark/test_decode.py",
    "tests/spark/test_one_call.py",
    "tests/spark/test_recipes.py",
    "tests/spark/test_sessions.py",
)
#: They answer as CloudWatch answers newer requests, or ask for parts of a second, which botocore
#: sent later: with an older one AT_TIMESTAMP begins up to a second earlier.
NEWER = (
    "tests/unit/aws/test_clients.py::test_metrics_reach_the_wire",
    "tests/unit/aws/test_service_clock.py::test_a_call_that_is_refused_for_its_time_is_repeated_once_and_the_next_ones_are_not_refused",
    "tests/unit/aws/test_shard_subscription.py::TestEvents::test_the_request_is_the_apis",
)
_BOUND = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=([0-9.]+)")


def pins(text: str) -> list[str]:
    """``name==version`` of each lower bound of an installation with the extras.

    Args:
        text: of ``setup.cfg``.
    """
    parser = configparser.ConfigParser()
    parser.read_string(text)
    extras = parser["options.extras_require"]
    wanted = [parser["options"]["install_requires"], *(extras[extra] for extra in EXTRAS)]
    lines = [line for text in wanted for line in text.splitlines()]
    found = [f"{bound[1]}=={bound[2]}" for line in lines if (bound := _BOUND.match(line))]
    # boto3 alone would take the newest botocore of its series.
    return found + [pin.replace("boto3", "botocore") for pin in found if pin.startswith("boto3=")]


def main(arguments: list[str]) -> int:
    """Make the environment if there is none yet, and run the tests; pytest's exit code."""
    folder = ROOT / ".cache" / "lowest"
    python, stamp, file = folder / "bin" / "python", folder / ".installed", folder / "pins.txt"
    wanted = "\n".join(pins((ROOT / "setup.cfg").read_text("utf-8"))) + "\n"
    if not stamp.exists() or file.read_text("utf-8") != wanted:
        stamp.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        file.write_text(wanted, "utf-8")
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        subprocess.run([*pip, "--constraint", file, "--editable", ".[dev]"], cwd=ROOT, check=True)
        stamp.touch()
    chosen = arguments or [*TESTS, *(f"--deselect={test}" for test in NEWER)]
    command = [python, "-m", "pytest", "-p", "no:randomly", *chosen]
    print("+", *wanted.split(), *map(str, command[1:]), flush=True)
    return subprocess.call(command, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
