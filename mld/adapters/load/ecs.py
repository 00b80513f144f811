"""CPU of a container in an ECS task, from the task metadata endpoint, version 4."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from mld.adapters.load.metadata import get_json
from mld.decide.worker_load import online_processors, task_limit, task_percent
from mld.errors import MalformedData

if TYPE_CHECKING:
    from mld.ports.offload import Offload

_log = logging.getLogger(__name__)


class EcsTask:
    """The container's part of its task. Satisfies :class:`mld.ports.worker_load.LoadSource`."""

    name = "ECS task"

    def __init__(self, url: str, offload: Offload) -> None:
        """Ask nothing yet.

        Args:
            url: ``ECS_CONTAINER_METADATA_URI_V4``.
            offload: where requests may take their time.
        """
        self._url = url.rstrip("/")
        self.place = self._url
        self._offload = offload
        self._limit: float | None = None

    async def sample(self) -> float | None:
        """See :class:`mld.ports.worker_load.LoadSource`."""
        try:
            stats = await self._get("/stats")
            if self._limit is None:
                task, container = await self._get("/task"), await self._get("")
                docker_id = str(container.get("DockerId"))
                self._limit = task_limit(task, docker_id, online_processors(stats))
            return task_percent(stats, self._limit)
        except (OSError, MalformedData) as error:
            _log.debug("The CPU of the %s could not be read: %s", self.name, error)
            return None

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._offload.run(get_json, self._url + path)
