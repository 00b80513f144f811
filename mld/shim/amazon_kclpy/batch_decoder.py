"""Batches of records, decoded with msgspec. Import errors mean that json has to do it.

Its structs only carry what was decoded; programs get the classes of ``messages`` around them. Only
a batch in the form that daemons write is decoded here: every field there, of its usual type, and no
other. Anything else is left to json, which decodes it or fails at it.
"""

import base64
from collections import deque
from itertools import repeat
from typing import Annotated, List, Literal  # Python 3.9

from msgspec import Meta, MsgspecError, Struct, __version__, convert  # msgspec 0.18
from msgspec.json import Decoder

from amazon_kclpy.messages import LATEST_MILLIS, ProcessRecordsInput, Record

#: What decodes batches here.
NAME = "msgspec " + __version__

#: How daemons begin a batch, as text and as bytes.
_HEADS = {str: '{"action":"processRecords",', bytes: b'{"action":"processRecords",'}


class _Fields(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """Of a record, in the order of the wire; stands for ``messages.Fields``."""

    data: str
    partition_key: str
    sequence_number: str
    approximate_arrival_timestamp: Annotated[int, Meta(ge=0, le=LATEST_MILLIS)]
    sub_sequence_number: int
    action: Literal["record"]

    @property
    def timestamp_millis(self):
        return self.approximate_arrival_timestamp

    def binary_data(self):
        try:
            return convert(self.data, bytes)
        except MsgspecError:  # not strictly base64, which b64decode may accept
            return base64.b64decode(self.data)

    def json_dict(self):
        return {
            "data": self.data,
            "partitionKey": self.partition_key,
            "sequenceNumber": self.sequence_number,
            "approximateArrivalTimestamp": self.approximate_arrival_timestamp,
            "subSequenceNumber": self.sub_sequence_number,
            "action": self.action,
        }


class _Batch(Struct, forbid_unknown_fields=True, rename="camel"):
    action: Literal["processRecords"]
    records: List[_Fields]
    millis_behind_latest: int


_decode = Decoder(_Batch).decode


def decode_batch(line):
    """The message in a line of text or bytes; None if json has to decode it."""
    head = _HEADS.get(type(line))
    if head is None or not line.startswith(head):
        return None
    try:
        batch = _decode(line)
    except (MsgspecError, UnicodeError, RecursionError):
        return None
    fields = batch.records
    records = list(map(object.__new__, repeat(Record, len(fields))))
    deque(map(Record._fields.__set__, records, fields), maxlen=0)
    return ProcessRecordsInput(
        {
            "action": batch.action,
            "records": records,
            "millisBehindLatest": batch.millis_behind_latest,
        }
    )
