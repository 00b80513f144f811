"""The port :class:`mld.ports.aws.Glue`, by botocore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mld.adapters.aws.clients import Caller

if TYPE_CHECKING:
    from botocore.client import BaseClient

    from mld.adapters.calls import CallPool


class BotocoreGlue:
    """Reading schemas; raises the errors of ``mld.errors`` only.

    Args:
        client: a Glue client, see :func:`mld.adapters.aws.clients.make_client`.
        pool: of its own: Glue may hang.
    """

    def __init__(self, client: BaseClient, pool: CallPool) -> None:
        self._calls = Caller(client, pool)

    async def get_schema_version(self, **request: Any) -> dict[str, Any]:
        """GetSchemaVersion: definition, format and ARN of one version."""
        return await self._calls.read("get_schema_version", request)
