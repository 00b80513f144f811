"""Which stream is read, and how requests and lease keys name it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcl_mld.errors import MalformedData

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


_TABLE_STREAM = re.compile(
    r"arn:(?P<partition>aws[^:]*):dynamodb:(?P<region>[-a-z0-9]+):(?P<account>[0-9]{12})"
    r":table/(?P<table>[a-zA-Z0-9_.-]{3,255})(?:/stream/(?P<label>[-0-9T:.]+))?\Z"
)
#: Stands for the label of a table's latest stream, until that is looked up.
LATEST_LABEL = "*"
#: What users are told to write instead.
TABLE_STREAM_FORM = (
    "write arn:aws:dynamodb:<region>:<12 digits>:table/<table>/stream/<label>, which is"
    " LatestStreamArn in the answer of aws dynamodb describe-table"
)
_TABLE_STREAM_NAME = re.compile(
    r"(?P<region>[-a-z0-9]+)\$(?P<account>[0-9]{12})\$(?P<table>[a-zA-Z0-9_.-]{3,255})"
    r"\$(?P<label>[-0-9T_.]+)\Z"
)
#: In lease keys of one of many streams of tables: the label has the time of creation. Source:
#: KinesisMapperUtil (dynamodb-streams-kinesis-adapter 2.3.0).
TABLE_STREAM_EPOCH = 1
#: The region in ARNs of DynamoDB Local, whatever region its client has.
LOCAL_REGION = "ddblocal"


@dataclass(frozen=True, slots=True)
class TableStreamArn:
    """The parts of ``arn:aws*:dynamodb:<region>:<12 digits>:table/<table>/stream/<label>``.

    Attributes:
        label: time of creation, e.g. ``2026-11-28T07:09:24.310``: a stream that is created again has
            another one. Or :data:`LATEST_LABEL`.
    """

    partition: str
    region: str
    account: str
    table: str
    label: str

    @classmethod
    def parse(cls, text: str) -> TableStreamArn:
        """Read an ARN.

        Raises:
            MalformedData: the text is not the ARN of a DynamoDB stream.
        """
        match = _TABLE_STREAM.match(text)
        if match is None or match["label"] is None:
            raise MalformedData(f"{text!r} is not the ARN of a DynamoDB stream")
        return cls(**match.groupdict())

    @classmethod
    def latest_of(cls, text: str) -> TableStreamArn | None:
        """The latest stream of the table whose ARN this is; None = it is not the ARN of a table."""
        match = _TABLE_STREAM.match(text)
        if match is None or match["label"] is not None:
            return None
        return cls(**{**match.groupdict(), "label": LATEST_LABEL})

    @classmethod
    def of_name(cls, name: str) -> TableStreamArn | None:
        """The ARN of the stream with a :attr:`name`; None = that of a stream of Kinesis."""
        match = _TABLE_STREAM_NAME.match(name)
        if match is None:
            return None
        label = match["label"].replace("_", ":")
        region = match["region"]
        return cls(partition_of(region), region, match["account"], match["table"], label)

    @property
    def name(self) -> str:
        """How Java's adapter names the stream in its log, its metrics and lease keys."""
        label = self.label.replace(":", "_")
        return f"{self.region}${self.account}${self.table}${label}"

    @property
    def mark(self) -> str:
        """``account:region:name``, as rows of a single stream have it."""
        return f"{self.account}:{self.region}:{self.name}"

    def __str__(self) -> str:
        place = f"arn:{self.partition}:dynamodb:{self.region}:{self.account}"
        return f"{place}:table/{self.table}/stream/{self.label}"


def parse_arn(text: str) -> StreamArn | TableStreamArn:
    """Read the ARN of a stream.

    Raises:
        MalformedData: the text is neither the ARN of a Kinesis stream nor of a DynamoDB stream.
    """
    if is_arn_of_table(text):
        return TableStreamArn.parse(text)
    return StreamArn.parse(text)


def is_arn_of_table(arn: str) -> bool:
    """Whether a text begins as the ARN of a table or of its stream does."""
    return arn.split(":", 3)[2:3] == ["dynamodb"]


@dataclass(frozen=True, slots=True)
class SourceTraits:
    """How streams of one service behave, as far as a decision depends on it.

    Attributes:
        service: botocore's name of the service.
        has_hash_ranges: shards divide a space of hash keys, so that a hole shows a missing lease.
        rolls_over: a shard is replaced by a single child that has no other parent.
        lists_late: a new shard may appear in lists after its parent has ended, and below shards that
            were listed before; a closed shard may be listed whose records are gone.
        reuses_names: another stream may get the name of this one, and then shards of the same ids.
        has_aggregates: a record may hold several, and a checkpoint may lie among them.
        keys_in_data: the key that orders records stands in their data: that of a changed item. The
            partition key is a number of its own for each.
        shows_tip: GetRecords says how far the shard's tip is, 0 where it is reached; otherwise it
            says how old the last record is.
        least_digits: that a sequence number has; shorter ones are refused, so it may begin with zeros.
        times_in_s: the time of a record is cut off to a whole second.
        keeps_longer: the time for which records stay can be raised.
        may_fan_out: records can be pushed.
        empty_pauses: idle times after an answer without records.
        most_readers: that may read a shard at the same time; None = no limit matters.
    """

    service: str
    has_hash_ranges: bool
    rolls_over: bool
    lists_late: bool
    reuses_names: bool
    has_aggregates: bool
    keys_in_data: bool
    shows_tip: bool
    least_digits: int
    times_in_s: bool
    keeps_longer: bool
    may_fan_out: bool
    empty_pauses: int
    most_readers: int | None


KINESIS = SourceTraits(
    service="kinesis",
    has_hash_ranges=True,
    rolls_over=False,
    lists_late=False,
    reuses_names=True,
    has_aggregates=True,
    keys_in_data=False,
    shows_tip=True,
    least_digits=1,
    times_in_s=False,
    keeps_longer=True,
    may_fan_out=True,
    empty_pauses=1,
    most_readers=None,
)
DYNAMODB_STREAMS = SourceTraits(
    service="dynamodbstreams",
    has_hash_ranges=False,
    rolls_over=True,
    lists_late=True,
    reuses_names=False,
    has_aggregates=False,
    keys_in_data=True,
    shows_tip=False,
    least_digits=21,
    times_in_s=True,
    keeps_longer=False,
    may_fan_out=False,
    empty_pauses=2,
    most_readers=2,
)


def traits_of(arn: str | None) -> SourceTraits:
    """The traits of the stream of an ARN; None = a stream that has only a name."""
    return DYNAMODB_STREAMS if arn is not None and is_arn_of_table(arn) else KINESIS


#: What an operation on streams needs where the stream is that of a table.
_ACTIONS_OF_TABLES = {
    "DescribeStreamSummary": "DescribeStream",
    "ListShards": "DescribeStream",
    "GetShardIterator": "GetShardIterator",
    "GetRecords": "GetRecords",
    "ListStreams": "ListStreams",
}


def stream_action(operation: str, traits: SourceTraits) -> str:
    """The action of IAM that allows a read of a stream, e.g. ``kinesis:GetRecords``.

    Args:
        operation: as Kinesis names it.
    """
    if traits is DYNAMODB_STREAMS:
        return f"dynamodb:{_ACTIONS_OF_TABLES[operation]}"
    return f"kinesis:{operation}"


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
    def traits(self) -> SourceTraits:
        """What distinguishes streams of its service."""
        return traits_of(self.arn)

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
        """The multi-stream stream of ``account:name:epoch``; with its ARN if it is that of a table.

        Raises:
            MalformedData: not that form, epoch 0, or epoch beyond a signed 64-bit number.
        """
        match = _MULTI.match(text)
        epoch = int(match["epoch"]) if match else 0
        if match is None or not 0 < epoch < 2**63:
            raise MalformedData(f"{text!r} is not of the form account:stream:creationEpoch")
        table = TableStreamArn.of_name(match["name"])
        arn = None if table is None else str(table)
        return cls(name=match["name"], arn=arn, account=match["account"], epoch=epoch)
