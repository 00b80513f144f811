"""What the daemon sends, as objects: one class per message."""

import base64
from datetime import datetime

from amazon_kclpy.checkpoint_error import CheckpointError

#: No later time of arrival is sure to be a datetime: the end of 9999 in the last time zone.
LATEST_MILLIS = 253402214400000


class MessageDispatcher:
    """A message that makes the record processor do something."""

    def dispatch(self, checkpointer, record_processor):
        """Call the method of the (v3) record processor that this message is for."""
        raise NotImplementedError

    def action(self):
        """Name of the message; a property in every subclass."""
        raise NotImplementedError


class _Message(MessageDispatcher):
    """A message that the daemon sends."""

    def __init__(self, json_dict):
        self._action = json_dict["action"]

    @property
    def action(self):
        """Its name in the protocol, for example ``initialize``."""
        return self._action


class _WithCheckpointer(_Message):
    """A message whose receiver may checkpoint."""

    def __init__(self, json_dict):
        self._checkpointer = None
        super().__init__(json_dict)

    @property
    def checkpointer(self):
        """Writes checkpoints, see :class:`amazon_kclpy.kcl.Checkpointer`."""
        return self._checkpointer


class InitializeInput(_Message):
    """The first message: which shard this process serves, and from where."""

    def __init__(self, json_dict):
        self._shard_id = json_dict["shardId"]
        self._sequence_number = json_dict["sequenceNumber"]
        self._sub_sequence_number = json_dict["subSequenceNumber"]
        super().__init__(json_dict)

    @property
    def shard_id(self):
        """Shard id."""
        return self._shard_id

    @property
    def sequence_number(self):
        """Sequence number of the last checkpoint, or a sentinel such as ``TRIM_HORIZON``."""
        return self._sequence_number

    @property
    def sub_sequence_number(self):
        """Position inside an aggregated record."""
        return self._sub_sequence_number

    def dispatch(self, checkpointer, record_processor):
        record_processor.initialize(self)


class ProcessRecordsInput(_WithCheckpointer):
    """A batch of records."""

    def __init__(self, json_dict):
        self._records = json_dict["records"]
        self._millis_behind_latest = json_dict["millisBehindLatest"]
        super().__init__(json_dict)

    @property
    def records(self):
        """List of :class:`Record`, in order."""
        return self._records

    @property
    def millis_behind_latest(self):
        """How far this batch is behind the tip of the shard; may be None."""
        return self._millis_behind_latest

    def dispatch(self, checkpointer, record_processor):
        self._checkpointer = checkpointer
        record_processor.process_records(self)


class LeaseLostInput(_Message):
    """Another worker has the shard now; it is too late to checkpoint."""

    def dispatch(self, checkpointer, record_processor):
        record_processor.lease_lost(self)


class ShardEndedInput(_WithCheckpointer):
    """The shard has no more records; its receiver must checkpoint."""

    def dispatch(self, checkpointer, record_processor):
        self._checkpointer = checkpointer
        record_processor.shard_ended(self)


class ShutdownRequestedInput(_WithCheckpointer):
    """The daemon is about to stop; a last chance to checkpoint."""

    def dispatch(self, checkpointer, record_processor):
        self._checkpointer = checkpointer
        record_processor.shutdown_requested(self)


class LeaseLostCheckpointer:
    """Stands where v1 and v2 processors expect a checkpointer after the lease was lost."""

    def checkpoint(self, sequence_number=None, sub_sequence_number=None):
        """Always refuses."""
        raise CheckpointError("Checkpointing is not allowed when the lease is lost")


class ShutdownInput:
    """Why a v1 or v2 processor must shut down: ``ZOMBIE`` or ``TERMINATE``."""

    @staticmethod
    def zombie():
        """The lease was lost."""
        return ShutdownInput("ZOMBIE", LeaseLostCheckpointer())

    @staticmethod
    def terminate(checkpointer):
        """The shard has ended."""
        return ShutdownInput("TERMINATE", checkpointer)

    def __init__(self, reason, checkpointer):
        self._reason = reason
        self._checkpointer = checkpointer

    @property
    def reason(self):
        """``ZOMBIE`` or ``TERMINATE``."""
        return self._reason

    @property
    def checkpointer(self):
        """Usable with ``TERMINATE`` only."""
        return self._checkpointer

    @property
    def action(self):
        """``shutdown``."""
        return "shutdown"


class CheckpointInput:
    """The daemon's answer to a checkpoint."""

    def __init__(self, json_dict):
        self._sequence_number = json_dict["sequenceNumber"]
        self._sub_sequence_number = json_dict["subSequenceNumber"]
        self._error = json_dict.get("error")

    @property
    def sequence_number(self):
        """As asked for."""
        return self._sequence_number

    @property
    def sub_sequence_number(self):
        """As asked for."""
        return self._sub_sequence_number

    @property
    def error(self):
        """Name of the error, None = written."""
        return self._error


class Fields:
    """Of a record that json has decoded.

    Raises:
        KeyError: one is missing.
        TypeError, ValueError, OverflowError: the time of arrival is no time.
    """

    __slots__ = (
        "_json_dict",
        "data",
        "partition_key",
        "sequence_number",
        "sub_sequence_number",
        "timestamp_millis",
    )

    def __init__(self, json_dict):
        self.sequence_number = json_dict["sequenceNumber"]
        self.sub_sequence_number = json_dict["subSequenceNumber"]
        self.timestamp_millis = int(json_dict["approximateArrivalTimestamp"])
        if not 0 <= self.timestamp_millis <= LATEST_MILLIS:
            datetime.fromtimestamp(self.timestamp_millis / 1000.0)
        self.partition_key = json_dict["partitionKey"]
        self.data = json_dict["data"]
        self._json_dict = json_dict

    def binary_data(self):
        """The bytes that ``data`` stands for."""
        return base64.b64decode(self.data)

    def json_dict(self):
        """All that the message says of the record, by its names there."""
        return self._json_dict


class Record:
    """One record of the stream."""

    # The slot is what a decoder can fill for a whole batch without running Python for each record.

    __slots__ = ("__dict__", "__weakref__", "_fields")

    def __init__(self, json_dict):
        self._fields = Fields(json_dict)

    def __getstate__(self):
        return self._fields.json_dict(), self.__dict__

    def __setstate__(self, state):
        json_dict, attributes = state
        self._fields = Fields(json_dict)
        self.__dict__.update(attributes)

    @property
    def binary_data(self):
        """The record's bytes."""
        return self._fields.binary_data()

    @property
    def data(self):
        """The record's bytes as base64 text."""
        return self._fields.data

    @property
    def sequence_number(self):
        """Sequence number, decimal digits as text."""
        return self._fields.sequence_number

    @property
    def sub_sequence_number(self):
        """Position inside an aggregated record, 0 for others."""
        return self._fields.sub_sequence_number

    @property
    def timestamp_millis(self):
        """Arrival in the stream, milliseconds since the epoch."""
        return self._fields.timestamp_millis

    @property
    def approximate_arrival_timestamp(self):
        """Arrival in the stream as a datetime without a zone, in local time."""
        return datetime.fromtimestamp(self.timestamp_millis / 1000.0)

    @property
    def partition_key(self):
        """Partition key."""
        return self._fields.partition_key

    def get(self, field):
        """A field of the message by its wire name; KeyError when it is absent."""
        return self._fields.json_dict()[field]

    def __getitem__(self, field):
        return self.get(field)
