"""Two hundred fleets; see ``tests/sim/fleet.py``."""

import pytest

from tests.sim.chunks import acquit, portions

pytestmark = pytest.mark.sim


#: The quick part of the tests runs so many of them.
QUICK = 40


def _id(seeds):
    return f"{seeds.start}-{seeds.stop - 1}"


@pytest.mark.parametrize(
    "seeds",
    [
        *portions(0, QUICK),
        *(pytest.param(each, marks=pytest.mark.proof) for each in portions(QUICK, 200 - QUICK)),
    ],
    ids=_id,
)
def test_nothing_is_lost_whatever_happens(seeds):
    acquit(seeds)
