"""Opens the service that the streams of a file are read from; the only place that chooses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.aws.clients import kinesis_settings, subscription_settings
from kcl_mld.aws.dynamodb_streams import BotocoreDynamoDbStreams
from kcl_mld.aws.kinesis import BotocoreKinesis
from kcl_mld.config.stream import DYNAMODB_STREAMS

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from botocore.client import BaseClient

    from kcl_mld.aws.clients import ClientSettings
    from kcl_mld.config.config import Config
    from kcl_mld.kernel.adapters.calls import CallPool

    KinesisPort: TypeAlias = BotocoreKinesis | BotocoreDynamoDbStreams


def open_kinesis(
    config: Config,
    make_client: Callable[[ClientSettings], BaseClient],
    control: CallPool,
    retrieval: CallPool,
    *,
    subscribes: bool = False,
) -> KinesisPort:
    """The port ``Kinesis`` for the streams of a file.

    Args:
        make_client: with the credentials of the file.
        control: pool of everything but records.
        retrieval: pool of GetRecords and GetShardIterator.
        subscribes: subscriptions get a client of their own where the file may ask for them.
    """
    client = make_client(kinesis_settings(config))
    if config.traits is DYNAMODB_STREAMS:
        patience_s = 2 * config.shards.audit_interval_s
        return BotocoreDynamoDbStreams(client, control, retrieval, patience_s)
    subscribing = None
    if subscribes and config.may_fan_out:
        subscribing = make_client(subscription_settings(config))
    return BotocoreKinesis(client, control, retrieval, subscribing)
