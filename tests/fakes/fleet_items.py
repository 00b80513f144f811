"""What lies beside the leases of a 3.x fleet, for tests: items and tables of both layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.fleet.model.state_history import ClientVersion
from tests.fakes.lease_world import TABLE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fakes.lease_world import World

COORDINATOR = f"{TABLE}-CoordinatorState"
METRICS = f"{TABLE}-WorkerMetricStats"


def migration(version: ClientVersion | str, key: str = "leaseKey") -> dict[str, Any]:
    """``Migration3.0``, of a table with that key."""
    name = version.value if isinstance(version, ClientVersion) else version
    return {
        key: {"S": "Migration3.0"},
        "cv": {"S": name},
        "mb": {"S": "java"},
        "mts": {"N": "1"},
        "entityType": {"S": "CLIENT_VERSION_MIGRATION"},
    }


def status(name: str) -> dict[str, Any]:
    """``TableMigration3.5`` of the old table."""
    return {
        "key": {"S": "TableMigration3.5"},
        "tm": {"S": f"TABLE_MIGRATION_STATUS_{name}"},
        "mb": {"S": "java"},
        "mts": {"N": "1"},
    }


def legacy(world: World, *items: Mapping[str, Any]) -> None:
    """The coordinator table of 3.0 to 3.4, with these items."""
    _create(world, COORDINATOR, "key")
    for item in items:
        world.model.call("PutItem", {"TableName": COORDINATOR, "Item": dict(item)})


def create_metrics_table(world: World) -> None:
    """The metrics table of 3.0 to 3.4."""
    _create(world, METRICS, "wid")


def _create(world: World, table: str, key: str) -> None:
    world.model.call(
        "CreateTable",
        {
            "TableName": table,
            "KeySchema": [{"AttributeName": key, "KeyType": "HASH"}],
            "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"}],
            "BillingMode": "PAY_PER_REQUEST",
        },
    )


class Lead:
    """A leadership that the test gives and takes."""

    def __init__(self, *, is_mine: bool = True) -> None:
        self.is_mine = is_mine
        self.releases = 0
        self.announced = 0

    async def is_leader(self) -> bool:
        """As the test says."""
        return self.is_mine

    def announce(self) -> None:
        """Counted."""
        self.announced += 1

    async def release(self) -> None:
        """Noted."""
        self.releases += 1
        self.is_mine = False
