"""Spark of the version that Delta Lake's jars are made for, as a server beside the newest pyspark.

Delta for Spark comes months after each Spark. Its tests are those of a second reader, so it may be an
older Spark that reads. Where pyspark is newer, the package of that version is put into ``.cache``
once: ``python -m tests.spark.other_spark``.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mld.spark.server import setup

if TYPE_CHECKING:
    from collections.abc import Iterator

#: As in the names of the jars in ``jars.DELTA``, and the release that is taken.
SERIES, RELEASE = "4.2", "4.2.1"
CACHE = Path(__file__).resolve().parents[2] / ".cache" / f"pyspark-{RELEASE}"
WHY_NOT = f"pip can't fetch pyspark {RELEASE}, the newest that Delta Lake has jars for"
_FETCH_TIMEOUT_S = 600


def home() -> Path | None:
    """The directory of a pyspark that Delta's jars fit; None = it cannot be had."""
    if version("pyspark").startswith(f"{SERIES}."):
        return setup._spark_home()
    if not CACHE.exists() and not _fetch():
        return None
    return CACHE / "pyspark"


@contextlib.contextmanager
def as_server() -> Iterator[None]:
    """Servers that are launched meanwhile are of that version; skips where there is none."""
    if (found := home()) is None:
        pytest.skip(WHY_NOT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "_spark_home", lambda: found)
        yield


def _fetch() -> bool:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    CACHE.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE.parent) as scratch:
        made = Path(scratch, "packages")
        command = [*pip, "--no-deps", "--target", str(made), f"pyspark=={RELEASE}"]
        try:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=_FETCH_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"cannot fetch pyspark {RELEASE}: {error}", file=sys.stderr)
            return False
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(CACHE)
    return True


if __name__ == "__main__":
    print(home() or WHY_NOT)
