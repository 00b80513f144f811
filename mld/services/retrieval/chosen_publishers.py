"""Polled or pushed: the publishers of one stream, as the configuration says.

Source: RetrievalMode.java, MultiLangDaemonConfiguration (KCL 3.5.1) for the worker; Java has no file
of several streams.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mld.model.config.config import RetrievalMode
from mld.services.retrieval.polling_publisher import polling_publishers

if TYPE_CHECKING:
    from mld.model.config.config import Config, RetrievalConfig
    from mld.services.conditions import Conditions
    from mld.services.retrieval.polling_publisher import PollingParts
    from mld.services.retrieval.records_publisher import PublisherFactory


def retrieval_of(config: Config, stream_name: str) -> RetrievalConfig:
    """How the records of a stream are got: its own options win over those of all.

    Args:
        config: ``retrieval`` holds for all; a consumer ARN there is of the only stream.
        stream_name: of the stream.
    """
    retrieval = config.retrieval
    if config.streams is None:
        return retrieval
    options = config.streams.options_of(stream_name)
    fan_out = replace(retrieval.fan_out, consumer_arn=options.consumer_arn)
    mode = retrieval.mode
    if options.is_pushed is not None:
        mode = RetrievalMode.FANOUT if options.is_pushed else RetrievalMode.POLLING
    return replace(retrieval, mode=mode, fan_out=fan_out)


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
            existence=parts.existence,
            config=config,
            budget=parts.budget,
            runtime=runtime,
            initial_timestamp_s=parts.initial_timestamp_s,
        )
    )
