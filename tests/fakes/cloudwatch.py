"""CloudWatch that remembers what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kcl_mld.errors import ServiceError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

_MAX_DATA = 1000


class FakeCloudWatch:
    """:class:`kcl_mld.aws.ports.CloudWatch` that keeps every request.

    Args:
        before: awaited first; raise to refuse the request.
    """

    def __init__(
        self, *, before: Callable[[str, str, Mapping[str, Any]], Awaitable[None]] | None = None
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.before = before

    @property
    def data(self) -> list[dict[str, Any]]:
        """All data published, in order."""
        return [datum for request in self.requests for datum in request["MetricData"]]

    async def put_metric_data(self, **request: Any) -> dict[str, Any]:
        if self.before is not None:
            await self.before("cloudwatch", "PutMetricData", request)
        if not request.get("Namespace") or not 1 <= len(request["MetricData"]) <= _MAX_DATA:
            raise ServiceError("PutMetricData", "InvalidParameterValue", "1 to 1000 data")
        self.requests.append(request)
        return {}
