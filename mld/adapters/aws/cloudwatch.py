"""The port :class:`mld.ports.aws.CloudWatch`, by botocore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.adapters.aws.clients import Caller

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from mld.adapters.calls import CallPool


class BotocoreCloudWatch:
    """Publishing metrics; raises the errors of ``mld.errors`` only.

    Args:
        client: a CloudWatch client, see :func:`mld.adapters.aws.clients.make_client`.
        pool: any but the one of the leases: CloudWatch may hang.
    """

    def __init__(self, client: BaseClient, pool: CallPool) -> None:
        self._calls = Caller(client, pool)

    async def put_metric_data(self, **request: Any) -> dict[str, Any]:
        """PutMetricData. After an unknown outcome a repetition may count twice."""
        return await self._calls.write("put_metric_data", request)
