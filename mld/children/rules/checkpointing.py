"""Which positions a child may checkpoint, and what is stored for them.

Six rules differ from Java, each where following it loses data or hangs a shard:

* At shard end the last delivered position is stored as SHARD_END even if it was stored before
  (Java: a no-op, and the shard never ends), and so is its bare sequence number when the last
  record was part of an aggregate.
* Sentinels are refused unless they repeat the last checkpoint (Java stores ``LATEST`` over
  ``TRIM_HORIZON``).
* At shard end a number beyond the last delivered one is refused (Java stores anything below
  SHARD_END, and the next owner cannot start there).
* A number alone counts as stored if a later user record of that aggregate is (Java refuses it).
  Containment begins a line inside an aggregate, and a child that fails at the refusal would fail at
  every record of the rest.
* Only ASCII digits are accepted.
* A number is stored as its service writes it, for Kinesis without leading zeros (Java stores the
  text, and Kinesis refuses to begin there).

Source: ShardRecordProcessorCheckpointer.java:110-145, 292-326 (KCL 3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kcl_mld.errors import CheckpointRefused, MalformedData
from kcl_mld.kernel.model.sequence import SHARD_END, ExtendedSequenceNumber, without_leading_zeros

ILLEGAL_ARGUMENT = "IllegalArgumentException"


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The positions of one shard.

    Attributes:
        last: the last checkpoint stored.
        largest: the largest position handed to the child; SHARD_END at shard end.
        at_end: at shard end, the largest position before it; else None.
    """

    last: ExtendedSequenceNumber
    largest: ExtendedSequenceNumber
    at_end: ExtendedSequenceNumber | None = None

    @classmethod
    def starting_at(cls, checkpoint: ExtendedSequenceNumber) -> CheckpointState:
        """The initial state: only the checkpoint itself is permitted before a delivery."""
        return cls(last=checkpoint, largest=checkpoint)

    def delivered(self, largest: ExtendedSequenceNumber | None) -> CheckpointState:
        """After delivering records up to ``largest`` (None = no record); it never goes back."""
        if largest is None or largest <= self.largest:
            return self
        return replace(self, largest=largest)

    def ended(self) -> CheckpointState:
        """At the end of the shard: SHARD_END becomes permitted."""
        return (
            self
            if self.largest.is_shard_end
            else replace(self, largest=SHARD_END, at_end=self.largest)
        )

    def stored(self, position: ExtendedSequenceNumber) -> CheckpointState:
        """After a successful write."""
        return replace(self, last=position)


def position_to_store(
    state: CheckpointState, sequence_number: str | None, sub_sequence_number: int | None
) -> ExtendedSequenceNumber | None:
    """The position that a checkpoint request writes.

    Args:
        sequence_number: as requested; None = the largest position handed out.
        sub_sequence_number: as requested; None = 0; ignored when the sequence number is None.

    Returns:
        The position to write; None when it is stored already.

    Raises:
        CheckpointRefused: the position is malformed, or outside [last, largest].
    """
    if sequence_number is None:
        asked = state.largest
    else:
        asked = _asked(state, sequence_number, sub_sequence_number)
    return None if asked == state.last else asked


def _asked(
    state: CheckpointState, sequence_number: str, sub_sequence_number: int | None
) -> ExtendedSequenceNumber:
    try:
        number = as_delivered(sequence_number, state.at_end or state.largest)
        asked = ExtendedSequenceNumber(number, sub_sequence_number or 0)
    except MalformedData as error:
        raise CheckpointRefused(ILLEGAL_ARGUMENT, str(error)) from error
    if asked.is_shard_end and state.largest.is_shard_end:
        return SHARD_END
    if state.at_end is not None and _is_the_end(asked, state.at_end, sub_sequence_number):
        return SHARD_END
    if asked == state.last:
        return asked
    if sub_sequence_number is None and asked.key[:2] == state.last.key[:2]:
        return state.last
    upper = state.largest if state.at_end is None else state.at_end
    if asked.sentinel is not None or not state.last <= asked <= upper:
        raise CheckpointRefused(
            ILLEGAL_ARGUMENT,
            f"{asked} is not between the last checkpoint {state.last} "
            f"and the largest delivered position {upper}",
        )
    return asked


def as_delivered(sequence_number: str, delivered: ExtendedSequenceNumber) -> str:
    """A sequence number as its service writes it; another text as it is.

    Kinesis writes no leading zeros, and takes none. DynamoDB Local writes all its numbers with as
    many digits, and takes no shorter ones; a child may have made integers of them.

    Args:
        delivered: one of the shard.
    """
    number = without_leading_zeros(sequence_number)
    form = delivered.sequence_number
    return number.zfill(len(form)) if form.startswith("0") and number.isdecimal() else number


def _is_the_end(
    asked: ExtendedSequenceNumber,
    at_end: ExtendedSequenceNumber,
    sub_sequence_number: int | None,
) -> bool:
    if asked.key == at_end.key:
        return True
    same_record = asked.sentinel is None and asked.key[:2] == at_end.key[:2]
    return same_record and sub_sequence_number is None
