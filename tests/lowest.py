"""The PySpark child with the oldest libraries that ``setup.cfg`` allows: ``make test-lowest``.

Each ``name>=version`` of the extras below is pinned to that version, in an environment of its own in
``.cache``; all others are the newest that go with them. So a lower bound that does not work is
found, and is to be raised.
"""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: Extras whose lower bounds are taken at their word.
EXTRAS = ("spark", "postgres")
#: What shows that the libraries do what the child asks of them: sessions, plans, Arrow, Delta.
TESTS = (
    "tests/unit/spark",
    "tests/spark/test_merge_sink.py",
    "tests/spark/test_outputs.py",
    "tests/spark/test_decode.py",
    "tests/spark/test_one_call.py",
    "tests/spark/test_recipes.py",
    "tests/spark/test_sessions.py",
)
_BOUND = re.compile(r"^([A-Za-z0-9_.-]+)(?:\[[^]]*\])?>=([0-9.]+)")


def pins(text: str) -> list[str]:
    """``name==version`` of each lower bound in the extras.

    Args:
        text: of ``setup.cfg``.
    """
    parser = configparser.ConfigParser()
    parser.read_string(text)
    extras = parser["options.extras_require"]
    lines = [line for extra in EXTRAS for line in extras[extra].splitlines()]
    return [f"{found[1]}=={found[2]}" for line in lines if (found := _BOUND.match(line))]


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
    command = [python, "-m", "pytest", "-p", "no:randomly", *(arguments or TESTS)]
    print("+", *wanted.split(), *map(str, command[1:]), flush=True)
    return subprocess.call(command, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
