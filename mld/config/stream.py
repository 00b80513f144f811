"""Which stream is read, and how requests and lease keys name it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mld.errors import MalformedData

_MULTI = re.compile(r"(?P<account>[0-9]+):(?P<name>[^:]+):(?P<epoch>[0-9]{1,19})\Z")
_ARN = re.compile(
    r"arn:(?P<partition>aws[^:]*):kinesis:(?P<region>[-a-z0-9]+):(?P<account>[0-9]{12}):stream/(?P<name>.+)\Z"
)

#: Regions whose names begin so are of another partition than ``aws``.
_PARTITIONS = (("cn-", "aws-cn"), ("us-gov-", "aws-us-gov"), ("eusc-", "aws-eusc"))


def partition_of(region: str) -> str:
    """Second part of the ARNs of a region; isolated regions are not known."""
    return next((p for start, p in _PARTITIONS if region.startswith(start)), "aws")


@dataclass(frozen=True, slots=True)
class StreamArn:
    """The parts of ``arn:aws*:kinesis:<region>:<12 digits>:stream/<name>``."""

    partition: str
    region: str
    account: str
    name: str

    @classmethod
    def parse(cls, text: str) -> StreamArn:
        """Read an ARN.

        Raises:
            MalformedData: the text is not the ARN of a Kinesis stream.
        """
        match = _ARN.match(text)
        if match is None:
            raise MalformedData(f"{text!r} is not the ARN of a Kinesis stream")
        return cls(**match.groupdict())

    @property
    def mark(self) -> str:
        """``account:region:name``, as rows of a single stream have it."""
        return f"{self.account}:{self.region}:{self.name}"

    def __str__(self) -> str:
        return f"arn:{self.partition}:kinesis:{self.region}:{self.account}:stream/{self.name}"


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream as this worker addresses it.

    Attributes:
        arn: sent beside the name (alone on GetRecords) when not None.
        account: with ``epoch`` selects multi-stream lease keys; both or neither.
        epoch: creation time as the fleet writes it in its keys (seconds or milliseconds), > 0.
    """

    name: str
    arn: str | None = None
    account: str | None = None
    epoch: int | None = None

    @property
    def identifier(self) -> str | None:
        """``account:name:epoch`` in multi-stream mode, else None."""
        return f"{self.account}:{self.name}:{self.epoch}" if self.epoch is not None else None

    def has_name_of(self, other: Stream) -> bool:
        """True for streams of one account and name; Kinesis has one of them at a time."""
        return (self.account, self.name) == (other.account, other.name)

    def lease_key(self, shard_id: str) -> str:
        """Primary key of a shard's lease."""
        return shard_id if self.epoch is None else f"{self.identifier}:{shard_id}"

    def request(self) -> dict[str, str]:
        """The naming parameters of a Kinesis request that takes both name and ARN."""
        return {"StreamName": self.name} | ({"StreamARN": self.arn} if self.arn else {})

    @classmethod
    def parse_identifier(cls, text: str) -> Stream:
        """The multi-stream stream of ``account:name:epoch``.

        Raises:
            MalformedData: not that form, epoch 0, or epoch beyond a signed 64-bit number.
        """
        match = _MULTI.match(text)
        epoch = int(match["epoch"]) if match else 0
        if match is None or not 0 < epoch < 2**63:
            raise MalformedData(f"{text!r} is not of the form account:stream:creationEpoch")
        return cls(name=match["name"], account=match["account"], epoch=epoch)
