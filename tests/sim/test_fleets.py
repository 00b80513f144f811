"""Two hundred fleets; see ``tests/sim/fleet.py``."""

import pytest

from tests.sim.chunks import acquit, portions

pytestmark = pytest.mark.sim


@pytest.mark.parametrize(
    "seeds", portions(0, 200), ids=lambda seeds: f"{seeds.start}-{seeds.stop - 1}"
)
def test_nothing_is_lost_whatever_happens(seeds):
    acquit(seeds)
