"""Polled or pushed: the publishers of one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.model.config.config import RetrievalMode
from mld.services.retrieval.polling_publisher import polling_publishers

if TYPE_CHECKING:
    from mld.services.conditions import Conditions
    from mld.services.retrieval.polling_publisher import PollingParts
    from mld.services.retrieval.records_publisher import PublisherFactory


def chosen_publishers(
    parts: PollingParts, application: str, conditions: Conditions
) -> PublisherFactory:
    """The factory of a stream, as its configuration says.

    Args:
        parts: what both ways need.
        application: names the consumer of enhanced fan-out, unless the configuration does.
        conditions: for ``/readyz``.
    """
    if parts.config.mode is RetrievalMode.POLLING:
        return polling_publishers(parts)
    return _fan_out_publishers(parts, application, conditions)


def _fan_out_publishers(
    parts: PollingParts, application: str, conditions: Conditions
) -> PublisherFactory:
    # Only here, so that a worker that polls starts faster.
    from mld.services.retrieval.consumer_registration import (  # noqa: PLC0415
        ConsumerRegistration,
        RegistrationParts,
    )
    from mld.services.retrieval.fan_out_publisher import (  # noqa: PLC0415
        FanOutParts,
        fan_out_publishers,
    )

    config, runtime = parts.config, parts.runtime
    registration = ConsumerRegistration(
        RegistrationParts(
            kinesis=parts.kinesis,
            stream=parts.stream,
            name=config.fan_out.consumer_name or application,
            config=config.fan_out,
            conditions=conditions,
            clock=runtime.clock,
            rng=runtime.rng,
        )
    )
    return fan_out_publishers(
        FanOutParts(
            kinesis=parts.kinesis,
            registration=registration,
            presence=parts.presence,
            config=config,
            budget=parts.budget,
            runtime=runtime,
            initial_timestamp_s=parts.initial_timestamp_s,
        )
    )
