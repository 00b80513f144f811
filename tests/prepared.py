"""``python -m tests.prepared``: what else each process of a run of all tests would do for itself.

Pytest rewrites the assertions of all tests, which is most of the work of collecting them, and keeps
what it compiled. Small Spark servers load their classes from an archive, and those that read with
Delta Lake are of the Spark that it has jars for. Nothing fails if one of these can't be had: then
tests cost more, or say so themselves.
"""

import os
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_STEPS = (
    ("tests.spark.small_server",),  # it says so if there is no Java
    ("tests.spark.other_spark",),
    ("pytest", "--collect-only", "-qqq", "-p", "no:cacheprovider", "tests"),
)


def main():
    """Do all beside each other."""
    # Else nothing that is compiled is kept.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    quiet = {"stdout": subprocess.DEVNULL, "cwd": _ROOT, "env": env}
    steps = [subprocess.Popen([sys.executable, "-m", *step], **quiet) for step in _STEPS]
    for step in steps:
        step.wait()


if __name__ == "__main__":
    main()
