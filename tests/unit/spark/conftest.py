"""Engines for the tests of jobs and sessions."""

import pytest

from tests.unit.spark.shard_kit import Bench


@pytest.fixture
def bench():
    """Makes benches; lets go of what hangs in them, and closes them."""
    made = []

    def make(*args, **properties):
        made.append(Bench(*args, **properties))
        return made[-1]

    yield make
    for each in made:
        each.sink.gate.set()
        each.engine.close()
