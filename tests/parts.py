"""Two parts of the tests: ``make test`` runs ``quick``, ``make proof`` runs ``proof``.

Together they run every test. What coverage traces is in both: without the tracer in the first,
with it in the second.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.tracing import is_traced

if TYPE_CHECKING:
    import pytest

_TESTS = Path(__file__).parent
#: What takes minutes: files and folders, and the mark ``proof`` on single tests.
PROOF = (
    "peer",
    "process/test_conform.py",
    "spark/test_chaos.py",
    "spark/test_cluster.py",
    "spark/test_end_to_end.py",
    "spark/test_java_stand_in.py",
    "spark/test_launcher.py",
    "spark/test_s3_spark.py",
    "spark/test_sample_apps.py",
    "spark/test_set_aside.py",
    "unit/leases/rules/test_taking_exhaustive.py",
)
#: Types more in the proof: pages whose commands take long.
BOTH = ("process/test_pages.py",)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which part; without it every test that was named runs."""
    parser.addoption("--part", choices=("quick", "proof"), help="quick: without what takes minutes")


def _is_in(item: pytest.Item, places: tuple[str, ...]) -> bool:
    return any(item.path.is_relative_to(_TESTS / place) for place in places)


def is_of(item: pytest.Item, part: str) -> bool:
    """Whether a part has a test."""
    takes_minutes = item.get_closest_marker("proof") is not None or _is_in(item, PROOF)
    if part == "quick":
        return not takes_minutes
    return takes_minutes or is_traced(item) or _is_in(item, BOTH)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is of the other part."""
    if (part := config.getoption("part")) is not None:
        left_out = [item for item in items if not is_of(item, part)]
        items[:] = [item for item in items if is_of(item, part)]
        config.hook.pytest_deselected(items=left_out)
