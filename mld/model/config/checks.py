"""What several properties mean together, and names that AWS would refuse later."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from mld.errors import MalformedData
from mld.model.masking import mask
from mld.model.streams.stream import StreamArn

if TYPE_CHECKING:
    from mld.model.config.settings import Settings

#: DynamoDB and Kinesis refuse other names, which a running daemon would meet for ever.
_TABLE_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}\Z")
_STREAM_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}\Z")
#: kclpy's sample file names a stream of this account, which nobody has: only the name is meant.
_PLACEHOLDER_ACCOUNT = "000000000000"
#: Dimensions of the daemon's metrics. Source: MetricsUtil and the scopes of KCL 3.5.1.
_DIMENSIONS = ("ALL", "Operation", "ShardId", "StreamId", "WorkerIdentifier")


def check_stream(settings: Settings, *, by_arn: bool) -> tuple[str, StreamArn | None]:
    """Name of the stream and the ARN to send, if any; the ARN's name wins, as in Java.

    An ARN of account 000000000000 gives the name only, unless it is to be addressed.

    Args:
        settings: reported to.
        by_arn: ``streamArnAddressing=arn``.
    """
    name = settings.text("streamName") or ""
    arn = _stream_arn(settings)
    if arn is not None:
        _compare_with_arn(settings, arn, name, by_arn=by_arn)
        name = arn.name
        settings.derive("streamName", name, "derived from streamArn")
        arn = arn if by_arn or arn.account != _PLACEHOLDER_ACCOUNT else None
    elif by_arn:
        settings.error("streamArnAddressing", "arn needs a streamArn", "write streamArn = arn:…")
    has_arn_text = bool((settings.text("streamArn") or "").strip())
    if not name.strip() and not has_arn_text:
        settings.error(
            "streamName",
            "Stream name or Stream Arn is required. Stream Arn takes precedence if both are"
            " passed in.",
        )
    elif name and not _STREAM_NAME.match(name):
        text = f"{mask(name)!r} is not a valid stream name: the Java daemon would retry for ever"
        is_arn = name.startswith("arn:")
        advice = "write streamArn = …" if is_arn else "letters, digits, _ . - and no blanks"
        settings.error("streamName", text, advice)
    return name, arn


def _stream_arn(settings: Settings) -> StreamArn | None:
    text = settings.text("streamArn") or ""
    if not text.strip():
        return None
    lacking = ("AWS partition", "service", "AWS region", "AWS account")
    parts = text.split(":", 5)
    form = "write arn:aws:kinesis:<region>:<12 digits>:stream/<name>"
    if _STREAM_NAME.match(text):
        form = f"write streamName = {text}"
    if parts[0] != "arn" or len(parts) == 1:
        settings.error("streamArn", "Malformed ARN - doesn't start with 'arn:'", form)
        return None
    if len(parts) < 6:
        what = lacking[len(parts) - 2]
        settings.error("streamArn", f"Malformed ARN - no {what} specified", form)
        return None
    try:
        arn: StreamArn | None = StreamArn.parse(text)
    except MalformedData:
        arn = None
    # What follows the name is a qualifier, such as /consumer/name:1.
    name = "" if arn is None else arn.name.partition("/")[0]
    if arn is None or not name:
        settings.error("streamArn", f"Invalid streamArn {mask(text)}", form)
        return None
    return StreamArn(arn.partition, arn.region, arn.account, name)


def _compare_with_arn(settings: Settings, arn: StreamArn, name: str, *, by_arn: bool) -> None:
    if name and name != arn.name:
        settings.warn("streamName", f"streamArn wins: {arn.name} is read", "keep one of the two")
    for key in ("kinesisClient.region", "regionName"):
        region = settings.text(key)
        if region is None:
            continue
        if region != arn.region and arn.account == _PLACEHOLDER_ACCOUNT and not by_arn:
            settings.warn(
                "streamArn",
                f"is a sample's: only the name is used, and {arn.name} is read in {region}",
                f"remove the line and write streamName = {arn.name}",
            )
        elif region != arn.region and not by_arn:
            settings.error(
                "streamArn",
                f"is in {arn.region}, but {key} is {region}: the Java daemon would read the stream"
                f" {arn.name} of {region} instead",
                f"write {key} = {arn.region}, or streamArnAddressing = arn",
            )
        elif region != arn.region and key == "kinesisClient.region":
            settings.error(key, f"is {region}, but streamArn is in {arn.region}", "remove the line")
        return


def check_table_name(settings: Settings, table: str, application: str) -> None:
    """Report a lease table that DynamoDB would refuse to create."""
    if not application.strip():
        return
    if not _TABLE_NAME.match(table):
        key = "applicationName" if table == application else "tableName"
        settings.error(
            key,
            f"{mask(table)!r} is not a valid table name: the Java daemon fails 20 times and"
            " exits 0",
            "3 to 255 letters, digits, _ . - and no blanks",
        )


def check_words(settings: Settings) -> tuple[str, ...] | None:
    """Enabled metrics dimensions; None = all. Unknown names are kept, as in Java, and reported."""
    name = "metricsEnabledDimensions"
    words = settings.value(name)
    if not isinstance(words, tuple):
        return None
    chosen = tuple(dict.fromkeys(str(word) for word in words))
    for word in chosen:
        if word not in _DIMENSIONS:
            close = difflib.get_close_matches(word, _DIMENSIONS, n=1)
            advice = f"did you mean {close[0]}?" if close else "known: " + ", ".join(_DIMENSIONS)
            settings.warn(name, f"no metric has a dimension {mask(word)}", advice)
    return None if "ALL" in chosen else chosen
