"""Polled or pushed: what the configuration says for one stream.

Source: RetrievalMode.java, MultiLangDaemonConfiguration (KCL 3.5.1) for the worker; Java has no file
of several streams.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mld.model.config.config import RetrievalMode

if TYPE_CHECKING:
    from mld.model.config.config import Config, RetrievalConfig


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
