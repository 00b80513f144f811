"""A daemon's message -> the method of the user's processor, with typed input."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from mld.spark.errors import BatchFailed
from protocol import Initialize, LeaseLost, ProcessRecords, ShardEnded, ShutdownRequested
from protocol.processor import (
    Checkpointer,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownRequestedInput,
)

if TYPE_CHECKING:
    from mld.spark.pipeline import SparkRecordProcessor
    from protocol import ChildEvent


class RefusingCheckpointer(Checkpointer):
    """Checkpoints follow the commits; the user's own would lose or repeat records."""

    def __init__(self) -> None:
        """Nobody is asked."""

    def checkpoint(
        self, sequence_number: str | None = None, sub_sequence_number: int | None = None
    ) -> NoReturn:
        """Refuse.

        Raises:
            BatchFailed: always.
        """
        del sequence_number, sub_sequence_number
        raise BatchFailed(
            "a SparkRecordProcessor never checkpoints: checkpoints follow the commits by themselves"
        )


def dispatch(processor: SparkRecordProcessor, message: ChildEvent) -> str:
    """Call the method that the message is for; its name."""
    refusing = RefusingCheckpointer()
    match message:
        case Initialize(shard_id, sequence, sub, extras):
            processor.initialize(InitializeInput(shard_id, sequence, sub, extras))
            return "initialize"
        case ProcessRecords(records, behind):
            processor.process_records(ProcessRecordsInput(records, behind, refusing))
            return "process_records"
        case LeaseLost():
            processor.lease_lost(LeaseLostInput())
            return "lease_lost"
        case ShardEnded():
            processor.shard_ended(ShardEndedInput(refusing))
            return "shard_ended"
        case ShutdownRequested():
            processor.shutdown_requested(ShutdownRequestedInput(refusing))
            return "shutdown_requested"
        case _:
            raise BatchFailed(f"the daemon's {type(message).__name__} answers nothing")
