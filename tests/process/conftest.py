"""One embedded AWS for all tests of a run, without faults at the start of each."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING

import pytest

from mld.local.embedded import EmbeddedAws
from tests import tracing
from tests.process.daemon import Application

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Names of streams and tables differ within a run.
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def shared_aws() -> Iterator[EmbeddedAws]:
    aws = EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1"))
    with tracing.off():  # it serves every test, and has tests of its own
        aws.start()
    try:
        yield aws
    finally:
        aws.stop()


@pytest.fixture
def aws(shared_aws: EmbeddedAws) -> Iterator[EmbeddedAws]:
    yield shared_aws
    shared_aws.control(faults=[])


@pytest.fixture
def new_app(
    aws: EmbeddedAws, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., Application]]:
    """Makes an application with a stream; every worker that it started is gone afterwards."""
    made: list[Application] = []
    stem = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name.removeprefix("test_"))[:60]

    def make(shards: int = 1, **properties: str) -> Application:
        app = Application(aws, f"{stem}-{next(_NUMBERS)}", tmp_path, **properties)
        if shards:
            app.create_stream(shards)
        made.append(app)
        return app

    yield make
    for app in made:
        app.kill_all()
