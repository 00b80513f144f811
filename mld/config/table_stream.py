"""The stream of a DynamoDB table in a file: its ARN, and what a file for one may not ask for.

Files of the Java adapter's 1.x daemon have the ARN in ``streamName``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mld.config.config import FanOutConfig, SchemaConfig
from mld.config.keys import keys_of
from mld.config.stream import DYNAMODB_STREAMS, LOCAL_REGION, TableStreamArn, traits_of
from mld.errors import MalformedData
from mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from mld.config.settings import Settings

_FORM = (
    "write arn:aws:dynamodb:<region>:<12 digits>:table/<table>/stream/<label>, which is"
    " LatestStreamArn in the answer of aws dynamodb describe-table"
)
_WHOLE = "a DynamoDB stream is read without enhanced fan-out"
_IDLE, _IDLE_MS = "idleTimeBetweenReadsInMillis", 1000
_RECORDS, _MOST_RECORDS = "maxRecords", 1000
_KEYS = ("streamArn", "streamName")


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
        settings.error(key, f"{mask(text)} is not the ARN of a DynamoDB stream", _FORM)
        return None
    other = next(one for one in _KEYS if one != key)
    if (settings.text(other) or text).strip() != text:
        settings.error(other, f"names another stream than {key}", "keep one of the two")
    _check_regions(settings, arn)
    _refuse(settings)
    settings.derive("streamName", arn.name, f"derived from {key}")
    if not settings[_IDLE].is_set:
        settings.derive(_IDLE, _IDLE_MS, "default of DynamoDB streams")
    if settings.number(_RECORDS) > _MOST_RECORDS:
        settings.derive(_RECORDS, _MOST_RECORDS, "limit of DynamoDB streams")
    return arn


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
    host = urlsplit(settings.text("kinesisEndpoint") or "").hostname or ""
    if host.startswith(("kinesis.", "dynamodb.")) and ".amazonaws.com" in host:
        text = "is not an endpoint of DynamoDB Streams"
        advice = "write https://streams.dynamodb.<region>.amazonaws.com, or remove the line"
        settings.error("kinesisEndpoint", text, advice)
