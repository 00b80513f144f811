"""The stream of a DynamoDB table in a file: its ARN, and what a file for one may not ask for.

Files of the Java adapter's 1.x daemon have the ARN in ``streamName``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kcl_mld.config.config import FanOutConfig, SchemaConfig
from kcl_mld.config.keys import keys_of
from kcl_mld.config.stream import (
    DYNAMODB_STREAMS,
    LOCAL_REGION,
    TABLE_STREAM_FORM,
    TableStreamArn,
    traits_of,
)
from kcl_mld.config.stream_selection import StreamSelection
from kcl_mld.errors import MalformedData
from kcl_mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.config.settings import Settings

_WHOLE = "a DynamoDB stream is read without enhanced fan-out"
_IDLE, _IDLE_MS = "idleTimeBetweenReadsInMillis", 1000
_RECORDS, _MOST_RECORDS = "maxRecords", 1000
_KEYS = ("streamArn", "streamName")
#: A host of Kinesis, DynamoDB or DynamoDB Streams, also with an account's id or of a VPC endpoint.
_AWS_HOST = re.compile(
    r"(?:.+?\.)??(?P<service>streams[.-](?:dynamodb|ddb)|(?:[a-z]+-)?(?:kinesis|dynamodb|ddb))"
    r"(?:-fips)?\.(?P<region>[a-z]+(?:-[a-z]+)+-\d+)\.(?:vpce\.)?"
    r"(?:amazonaws\.(?:com(?:\.cn)?|eu)|api\.(?:aws|amazonwebservices\.(?:com\.cn|eu)))"
)


def key_of_table_stream(settings: Settings) -> str | None:
    """The key whose value is an ARN of a DynamoDB stream; None = there is none."""
    return next((key for key in _KEYS if traits_of(settings.text(key)) is DYNAMODB_STREAMS), None)


def table_stream(settings: Settings, key: str) -> TableStreamArn | None:
    """The ARN of a file; None where that can't be read, which is reported.

    Args:
        key: see :func:`key_of_table_stream`.
    """
    text = (settings.text(key) or "").strip()
    try:
        arn = TableStreamArn.parse(text)
    except MalformedData:
        advice = TABLE_STREAM_FORM
        if TableStreamArn.latest_of(text) is not None:
            advice += (
                f". The ARN of a table may stand in streams: multiStream = true, streams = {text}"
            )
        settings.error(key, f"{mask(text)} is not the ARN of a DynamoDB stream", advice)
        return None
    other = next(one for one in _KEYS if one != key)
    if (settings.text(other) or text).strip() != text:
        settings.error(other, f"names another stream than {key}", "keep one of the two")
    settings.derive("streamName", arn.name, f"derived from {key}")
    _check(settings, arn)
    return arn


def check_table_streams(settings: Settings, arns: Sequence[TableStreamArn]) -> None:
    """Report what does not go with the streams of ``streams``.

    Args:
        arns: all of its items.
    """
    regions = sorted({one.region for one in arns})
    if len(regions) > 1:
        text = f"has streams of the regions {', '.join(regions)}"
        settings.error("streams", text, "give the streams of each region a worker of their own")
    else:
        _check(settings, arns[0])
    for key in keys_of(StreamSelection):
        if settings[key.name].is_set:
            settings.error(key.name, "is for streams of Kinesis only", "remove the line")
    for option in settings.stream_options:
        is_fan_out = option.option == "retrievalMode" and option.text.upper() == "FANOUT"
        if is_fan_out or option.option == "consumerArn":
            settings.error(mask(option.key), _WHOLE, "remove the line", option.line)


def _check(settings: Settings, arn: TableStreamArn) -> None:
    """What holds for one stream and for several."""
    _check_regions(settings, arn)
    _refuse(settings)
    _check_endpoint(settings, arn)
    if not settings[_IDLE].is_set:
        settings.derive(_IDLE, _IDLE_MS, "default of DynamoDB streams")
    if settings.number(_RECORDS) > _MOST_RECORDS:
        settings.derive(_RECORDS, _MOST_RECORDS, "limit of DynamoDB streams")


def _check_regions(settings: Settings, arn: TableStreamArn) -> None:
    if arn.region == LOCAL_REGION:
        return
    for key in ("kinesisClient.region", "regionName"):
        region = settings.text(key)
        if region is not None and region != arn.region:
            text = f"is {region}, but the DynamoDB stream is in {arn.region}"
            settings.error(key, text, f"write {key} = {arn.region}, or remove the line")
    if settings.text("regionName") is None:
        settings.derive("regionName", arn.region, "derived from the ARN of the stream")


def _refuse(settings: Settings) -> None:
    """What Kinesis has and DynamoDB Streams does not."""
    if settings.value("retrievalMode") == "FANOUT":
        settings.error("retrievalMode", _WHOLE, "write retrievalMode = POLLING")
    for key in keys_of(FanOutConfig):
        if settings[key.name].is_set:
            settings.error(key.name, _WHOLE, "remove the line")
    if settings.read(SchemaConfig).enabled:
        text = "records of a DynamoDB stream have no schema of a registry"
        settings.error("glueSchemaRegistry.enabled", text, "remove the line")


def _check_endpoint(settings: Settings, arn: TableStreamArn) -> None:
    host = urlsplit(settings.text("kinesisEndpoint") or "").hostname or ""
    match = _AWS_HOST.fullmatch(host)
    if match is None:
        return  # of a server of the user's own
    region = match["region"] if arn.region == LOCAL_REGION else arn.region
    advice = f"write https://streams.dynamodb.{region}.amazonaws.com, or remove the line"
    if not match["service"].startswith("streams"):
        settings.error("kinesisEndpoint", "is not an endpoint of DynamoDB Streams", advice)
    elif match["region"] != region:
        text = f"is in {match['region']}, but the DynamoDB stream is in {region}"
        settings.error("kinesisEndpoint", text, advice)
