"""Whether the packages of this project are the ones that Python would import."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from mld.spark.errors import SparkConfigError


def check_packages() -> None:
    """Look whether ``protocol`` is the one that belongs to ``mld``.

    Raises:
        SparkConfigError: another package of that name is first in ``sys.path``.
    """
    ours = Path(__file__).resolve().parents[3] / "protocol"
    found = importlib.util.find_spec("protocol")  # also where an editable install leads to
    place = None if found is None else next(iter(found.submodule_search_locations or ()), None)
    place = place or (found.origin if found else None)
    if place is None or Path(place).resolve() != ours:
        raise SparkConfigError(
            f"the package 'protocol' is found at {place}, not at "
            f"{ours}: rename that file or take its folder out of PYTHONPATH"
        )
