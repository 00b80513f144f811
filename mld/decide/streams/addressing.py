"""Which name or ARN goes into Kinesis requests when the file gives a ``streamArn``.

Java's daemon takes only the *name* out of the ARN and reads the stream of that name in its own
region and account. Sending the ARN is right where that is the same stream; where it is another
one, a mixed fleet would read two streams into one lease table, so the daemon refuses unless the
user says which one is meant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.errors import ConfigError, MalformedData
from mld.model.streams.stream import Stream, StreamArn

if TYPE_CHECKING:
    from mld.model.config.config import StreamConfig


def stream_to_read(config: StreamConfig, region: str, account: str | None) -> Stream:
    """The stream as requests must name it.

    Args:
        config: what the file says.
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
