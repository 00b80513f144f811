"""Our rarer renewals beside workers that renew as Java does: nobody loses a lease by silence."""

from typing import Any

import pytest

from tests.sim.fleet import judge
from tests.sim.plan import Plan

pytestmark = pytest.mark.sim

WEATHERS: dict[str, dict[str, Any]] = {
    "fine": {},
    "a table that is always slow": {"latency_s": (0.2, 0.7)},
    "a table that is slow now and then": {"slow_probability": 0.1, "slow_s": 1.0},
    "a throttled table": {"throttled": 0.3},
    "a table with errors": {"broken": 0.2},
    "answers that are lost": {"lost_after": 0.02},
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("weather", WEATHERS)
def test_no_lease_of_a_live_worker_is_ever_taken_as_expired(weather: str, seed: int) -> None:
    plan = Plan(
        seed=seed,
        workers=2,
        peers=2,
        shards=9,
        failover_s=10.0,
        chaos_s=250,
        put_every_s=20.0,
        weather=WEATHERS[weather],
    )
    verdict = judge(plan)
    assert not verdict.violations, verdict.report()
    assert verdict.counts["steal"] > 0, "the fleet has evened out"
    assert verdict.counts.get("failover of a live worker", 0) == 0, verdict.report()
