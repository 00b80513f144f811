"""Foreign workers are heavy: they run where ``make peer`` asks for them.

``KCL_MLD_PEER=all`` runs every scenario, ``short`` the short one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, Fleet, StandIn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_REPORTS: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanted = os.environ.get("KCL_MLD_PEER", "")
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if "peer" in marks and not (wanted == "all" or (wanted == "short" and "short" in marks)):
            item.add_marker(pytest.mark.skip(reason="foreign workers: make peer"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _REPORTS:
        terminalreporter.section("what the programs saw")
        for line in _REPORTS:
            terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def stand_in() -> Iterator[StandIn]:
    try:
        fetched.stand_in()
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    with StandIn() as running:
        yield running


@pytest.fixture
def new_fleet(
    stand_in: StandIn, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Fleet]]:
    """Makes the fleet of a test, see :class:`Fleet`; it is gone afterwards."""
    made: list[Fleet] = []
    stem = "".join(c if c.isalnum() else "-" for c in request.node.name)[5:60].strip("-")

    def make(streams: Mapping[str, int], client_version: str = COMPATIBLE) -> Fleet:
        fleet = Fleet(stand_in, stem, streams, tmp_path, client_version)
        made.append(fleet)
        fleet.__enter__()
        return fleet

    yield make
    for fleet in made:
        fleet.__exit__()
        _REPORTS.extend([request.node.name, *(f"  {line}" for line in fleet.diary)])
