"""Spark of the version that some jars are made for, as a server beside the newest pyspark.

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

from kcl_mld.spark.server import setup

if TYPE_CHECKING:
    from collections.abc import Iterator

#: As in the names of the jars in ``jars.DELTA`` and ``jars.ICEBERG``; the releases that are taken.
OF_DELTA, OF_ICEBERG = "4.2.1", "4.1.1"
_CACHE = Path(__file__).resolve().parents[2] / ".cache"
_FETCH_TIMEOUT_S = 600


def is_there(release: str) -> bool:
    """Whether it needn't be fetched."""
    return _place(release).exists()


def home(release: str = OF_DELTA) -> Path | None:
    """The directory of a pyspark of that release or series; None = it cannot be had."""
    if version("pyspark").startswith(f"{release.rpartition('.')[0]}."):
        return setup._spark_home()
    if not is_there(release) and not _fetch(release):
        return None
    return _place(release) / "pyspark"


@contextlib.contextmanager
def as_server(release: str = OF_DELTA) -> Iterator[None]:
    """Servers that are launched meanwhile are of that version; skips where there is none."""
    if (found := home(release)) is None:
        pytest.skip(f"pip can't fetch pyspark {release}, the newest that there are jars for")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(setup, "_spark_home", lambda: found)
        yield


def _place(release: str) -> Path:
    return _CACHE / f"pyspark-{release}"


def _fetch(release: str) -> bool:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    _CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as scratch:
        made = Path(scratch, "packages")
        command = [*pip, "--no-deps", "--target", str(made), f"pyspark=={release}"]
        try:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL, timeout=_FETCH_TIMEOUT_S)
        except (OSError, subprocess.SubprocessError) as error:
            print(f"cannot fetch pyspark {release}: {error}", file=sys.stderr)
            return False
        with contextlib.suppress(OSError):  # another process was faster
            made.rename(_place(release))
    return True


if __name__ == "__main__":
    print(home(*sys.argv[1:]) or "it can't be had")
