"""Which stream a file means: how requests name it, and which lease keys it has.

With a ``streamArn`` Java's daemon takes only the *name* out of the ARN and reads the stream of that
name in its own region and account. Sending the ARN is right where that is the same stream; where it
is another one, a mixed fleet would read two streams into one lease table, so the daemon refuses
unless the user says which one is meant.

Lease keys of one of many streams have its account and its creation epoch. Nothing in Kinesis or the
KCL fixes the unit of the epoch: applications write the creation time in seconds or in milliseconds.
A worker that chose another unit than the rest of its fleet would create a second set of leases, so
what the table already has is adopted.

Source: StreamIdentifier (KCL 3.5.1), which takes whatever number the application supplies.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kcl_mld.config.stream import (
    DYNAMODB_STREAMS,
    LOCAL_REGION,
    Stream,
    StreamArn,
    TableStreamArn,
    partition_of,
)
from kcl_mld.errors import ConfigError, MalformedData

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.config.config import StreamConfig
    from kcl_mld.config.stream_list import ListedStream

#: Epochs from here on are milliseconds: in seconds this is the year 5138, in milliseconds 1973.
_LEAST_MILLIS = 10**11
#: Kinesis exists since November 2013: a lower epoch is not a creation time.
_FIRST_S = 1_383_264_000


def stream_to_read(config: StreamConfig, region: str, account: str | None) -> Stream:
    """The stream as requests must name it.

    Args:
        region: region of the Kinesis client, e.g. ``eu-west-1``.
        account: 12 digits of the caller, or None where STS could not be asked.

    Returns:
        By name alone without an ARN, or when the account is unknown and the region agrees
        (then it is exactly what Java reads); by name and ARN otherwise.

    Raises:
        ConfigError: the ARN names another region or account than Java would read, and
            ``streamArnAddressing=arn`` is not set.
    """
    if config.arn is None:
        return Stream(config.name)
    if config.traits is DYNAMODB_STREAMS:
        return Stream(config.name, arn=config.arn)
    try:
        arn = StreamArn.parse(config.arn)
    except MalformedData as error:
        raise ConfigError(str(error), key="streamArn") from error
    if config.arn_addressing:
        if arn.region != region:
            raise ConfigError(
                f"the ARN is in {arn.region}, the Kinesis client in {region}; "
                f"set regionName={arn.region}",
                key="streamArn",
            )
        return Stream(arn.name, arn=config.arn)
    if arn.region != region or account not in (None, arn.account):
        read = f"{arn.name} in {region}, account {account or 'unknown'}"
        raise ConfigError(
            f"the ARN names {arn.name} in {arn.region}, account {arn.account}, but the Java daemon "
            f"would read {read}. Write streamName={arn.name} to read that one, or "
            "streamArnAddressing=arn to read the ARN's stream (then no Java worker may share "
            "the lease table)",
            key="streamArn",
        )
    return Stream(arn.name, arn=config.arn if account is not None else None)


def check_regions(streams: Iterable[ListedStream], region: str) -> None:
    """Make sure that one Kinesis client can read all streams.

    Raises:
        ConfigError: an ARN is of another region. Source: SchedulerTest:1602 (KCL 3.5.1).
    """
    for one in streams:
        if one.arn is not None and one.arn.region not in (region, LOCAL_REGION):
            raise ConfigError(
                f"{one.arn} is in {one.arn.region}, but the Kinesis client is in {region}; a worker"
                f" reads streams of one region: set regionName={one.arn.region}, or give that"
                " stream a worker of its own",
                key="streams",
            )


def described_stream(listed: ListedStream, region: str) -> Stream:
    """The stream for DescribeStreamSummary, from what the list says about it."""
    if listed.arn is not None:
        return Stream(listed.name, arn=str(listed.arn))
    if listed.account is None:
        return Stream(listed.name)
    return Stream(listed.name, arn=arn_of(listed.account, listed.name, region))


def arn_of(account: str, name: str, region: str) -> str:
    """The ARN of a stream of that account in the region of the client, as Java constructs it.

    The name of a table's stream has it all.
    """
    return str(
        TableStreamArn.of_name(name) or StreamArn(partition_of(region), region, account, name)
    )


def resolved_stream(
    listed: ListedStream,
    region: str,
    summary: Mapping[str, Any] | None,
    identifiers: Iterable[str],
    unit: str,
) -> Stream:
    """A stream of the list with all that its lease keys and requests need.

    Args:
        summary: ``StreamDescriptionSummary``; None where it could not be had, which does for an
            item that names account and epoch.
        identifiers: as for :func:`epoch_of`.
        unit: likewise.

    Raises:
        MalformedData: the answer lacks what is needed.
    """
    known = described_stream(listed, region)
    arn = known.arn or str((summary or {}).get("StreamARN", ""))
    account = listed.account or StreamArn.parse(arn).account
    epoch = listed.epoch
    if epoch is None:
        created = created_at_s((summary or {}).get("StreamCreationTimestamp"))
        if created is None:
            raise MalformedData(f"the creation time of stream {listed.name} is not known")
        epoch = epoch_of(account, listed.name, created, identifiers, unit)
    return Stream(listed.name, arn=arn, account=account, epoch=epoch)


def created_at_s(created: object) -> float | None:
    """``StreamCreationTimestamp`` in epoch seconds, in any form that a client returns."""
    if isinstance(created, datetime):
        return created.timestamp()
    return float(created) if isinstance(created, int | float) else None


def is_of_earlier_stream(epoch: int, created: object) -> bool:
    """Whether leases with that epoch belong to an earlier stream of the name.

    Args:
        created: ``StreamCreationTimestamp`` of the stream of that name now.

    Returns:
        True when the epoch is a creation time, in seconds or milliseconds, and an earlier one.
        Other numbers prove nothing: the KCL accepts any number that an application writes there.
    """
    created_s = created_at_s(created)
    return created_s is not None and _FIRST_S <= _epoch_s(epoch) <= created_s - 1


def is_of_later_stream(epoch: int, known: int) -> bool:
    """Whether leases with that epoch may belong to a stream created after the known one.

    Args:
        known: epoch of the stream of that name that is read.
    """
    return _epoch_s(epoch) >= _epoch_s(known) + 1


def _epoch_s(epoch: int) -> float:
    return epoch / 1000 if epoch >= _LEAST_MILLIS else float(epoch)


def epoch_of(
    account: str, name: str, created_at_s: float, identifiers: Iterable[str], unit: str
) -> int:
    """The creation epoch for a stream's lease keys.

    Args:
        account: 12 digits.
        created_at_s: ``StreamCreationTimestamp``, epoch seconds, to the millisecond.
        identifiers: ``account:name:epoch`` of each row in the table; others are skipped.
        unit: ``seconds``, ``millis``, or ``auto``: what most rows of this very stream have, else
            what most rows have, else seconds.

    Returns:
        The creation time in whole seconds or milliseconds.
    """
    seconds, millis = int(created_at_s), round(created_at_s * 1000)
    if unit != "auto":
        return millis if unit == "millis" else seconds
    # A stray row must not decide for a fleet: they are counted.
    own: Counter[int] = Counter()
    millis_lead = 0
    for identifier, rows in Counter(identifiers).items():
        stream = _parsed(identifier)
        if stream is None or stream.epoch is None:
            continue
        if (stream.account, stream.name) == (account, name):
            own[stream.epoch] += rows
        if stream.epoch >= _FIRST_S:  # another number is no creation time
            millis_lead += rows if stream.epoch >= _LEAST_MILLIS else -rows
    likeliest = max((seconds, millis, seconds * 1000), key=own.__getitem__)
    if own[likeliest]:
        return likeliest
    return millis if millis_lead > 0 else seconds


def _parsed(identifier: str) -> Stream | None:
    try:
        return Stream.parse_identifier(identifier)
    except MalformedData:
        return None
