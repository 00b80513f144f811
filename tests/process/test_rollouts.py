"""A rolling update and a scale-in with the shipped manifest's numbers, and faults that they show."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import pytest

from tests.process.daemon import STATUS, wait_until
from tests.process.rollouts import SHIPPED, Deployment, Policy, Report, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kcl_mld_protocol.conform.daemon import Script
    from tests.process.daemon import Application, Running

pytestmark = [pytest.mark.process, pytest.mark.proof]

#: So that a busy machine neither cuts a stop short nor lets leases expire.
UNHURRIED = {"shutdownGraceMillis": "120000", "failoverTimeMillis": "30000"}
PATIENT = dataclasses.replace(SHIPPED, grace_s=150.0)


class Fleet:
    """Two workers with four shards under traffic."""

    def __init__(self, app: Application, policy: Policy, script: Script | None = None) -> None:
        self.app = app
        self.deployment = Deployment(app, policy, 2, script)
        self.traffic = Traffic(app)

    def runs(self) -> list[Running]:
        return [pod.run for pod in (*self.deployment.ended, *self.deployment.pods)]

    def change(self, how: Callable[[Deployment], None]) -> Report:
        with self.traffic:
            self.deployment.start()
            wait_until(lambda: self.traffic.is_read(self.runs()), "all shards are read")
            wait_until(lambda: len(set(self.app.owners().values())) == 2, "both hold leases")
            since_s = time.time()
            how(self.deployment)
            wait_until(lambda: self.traffic.is_read(self.runs()), "all shards are read again")
            until_s = time.time()
        self.traffic.wait_for_all(self.runs)
        return self.traffic.report(self.runs(), since_s, until_s)

    def exit_codes(self) -> list[int | None]:
        return [pod.exit_code for pod in self.deployment.ended]


@pytest.fixture
def new_fleet(new_app: Callable[..., Application]) -> Iterator[Callable[..., Fleet]]:
    made = []

    def make(policy: Policy = PATIENT, script: Script | None = None) -> Fleet:
        made.append(Fleet(new_app(shards=4, **UNHURRIED), policy, script))
        return made[-1]

    yield make
    for fleet in made:
        fleet.deployment.stop()


def test_a_rolling_update_loses_and_repeats_nothing(new_fleet: Callable[..., Fleet]) -> None:
    fleet = new_fleet()
    report = fleet.change(Deployment.roll_out)
    assert fleet.exit_codes() == [0, 0]
    assert (report.lost, report.twice) == (0, 0)
    assert report.moves >= 4
    # What the report is made of: without the workers that ended, their records are missing.
    left = [pod.run for pod in fleet.deployment.pods]
    assert fleet.traffic.report(left, 0, 0).lost > 0


def test_a_scale_in_loses_and_repeats_nothing(new_fleet: Callable[..., Fleet]) -> None:
    fleet = new_fleet()
    report = fleet.change(lambda deployment: deployment.scale_in(1))
    assert fleet.exit_codes() == [0]
    assert (report.lost, report.twice) == (0, 0)
    assert report.moves >= 1


def test_a_program_that_makes_no_checkpoints_is_seen(new_fleet: Callable[..., Fleet]) -> None:
    fleet = new_fleet(script={"processRecords": [[STATUS]]})
    report = fleet.change(lambda deployment: deployment.scale_in(1))
    assert report.twice > 0
    assert report.lost == 0


def test_a_grace_that_is_too_short_is_seen(new_fleet: Callable[..., Fleet]) -> None:
    slow = {"shutdownRequested": [[["sleep", 20], STATUS]]}
    fleet = new_fleet(dataclasses.replace(PATIENT, grace_s=3.0), slow)
    fleet.change(lambda deployment: deployment.scale_in(1))
    assert fleet.exit_codes() == [137]
