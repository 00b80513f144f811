"""Where reading a shard begins, for an iterator and for a subscription alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.local.kinesis.faults import invalid, malformed

if TYPE_CHECKING:
    from mld.local.kinesis.shard import LocalShard
    from mld.local.kinesis.stream import LocalStream


def starting_position(
    stream: LocalStream,
    shard: LocalShard,
    now_s: float,
    *,
    kind: object,
    sequence: object = None,
    timestamp: object = None,
) -> int:
    """The position that a starting point means.

    Args:
        stream: for the messages.
        shard: to be read.
        now_s: epoch seconds.
        kind: ``TRIM_HORIZON``, ``LATEST``, ``AT_SEQUENCE_NUMBER``, ``AFTER_SEQUENCE_NUMBER`` or
            ``AT_TIMESTAMP``.
        sequence: sequence number for the two kinds that need one; a record's, a continuation's,
            or one of the two ends of the shard.
        timestamp: epoch seconds for ``AT_TIMESTAMP``.

    Raises:
        KinesisFault: ValidationException for another kind, InvalidArgumentException for a number
            of another shard or a time that is absent or to come.
    """
    match kind:
        case "TRIM_HORIZON":
            return shard.start
        case "LATEST":
            return shard.end
        case "AT_SEQUENCE_NUMBER" | "AFTER_SEQUENCE_NUMBER":
            after = shard.position_after_sequence(sequence)
            if after is None:
                raise invalid(
                    f"Sequence number {sequence} used on shard {shard.shard_id} in stream "
                    f"{stream.name} is invalid because it did not come from this stream."
                )
            if kind == "AT_SEQUENCE_NUMBER" and shard.sequence_at(after - 1) == sequence:
                return after - 1
            return after
        case "AT_TIMESTAMP":
            if not isinstance(timestamp, int | float):
                raise invalid("Must either specify timestampInMillis for AT_TIMESTAMP.")
            if timestamp > now_s:
                raise invalid("The timestamp cannot be later than the current time.")
            return shard.position_at_time(timestamp * 1000)
        case other:
            raise malformed(f"Value '{other}' at 'type' is not a starting position.")
