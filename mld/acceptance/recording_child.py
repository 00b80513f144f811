"""The child of acceptance runs: ``python -m kcl_mld.acceptance.recording_child``.

It writes what it is given into a file of its own in ``$KCL_MLD_ACCEPTANCE_FOLDER``, and checkpoints
every two seconds, so that a killed worker leaves something to be delivered again.
``$KCL_MLD_ACCEPTANCE_READER`` and ``…_WORKER`` say for whom it works: a Java daemon does not.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcl_mld_protocol.child import CheckpointError, RecordProcessor, run

if TYPE_CHECKING:
    from kcl_mld_protocol.child import (
        Checkpointer,
        InitializeInput,
        LeaseLostInput,
        ProcessRecordsInput,
        Record,
        ShardEndedInput,
        ShutdownRequestedInput,
    )

VARIABLE = "KCL_MLD_ACCEPTANCE_"
_CHECKPOINT_EVERY_S = 2.0
_REMOVED = "REMOVE"


class Recorder(RecordProcessor):
    """Writes down one shard.

    While the shard is idle it gets a tick, and checkpoints then.

    Args:
        folder: exists; the file in it is named after worker, process and time.
    """

    tick_s: float | None = _CHECKPOINT_EVERY_S

    def __init__(self, folder: Path, reader: str, worker: str) -> None:
        self._child = f"{worker}-{os.getpid()}-{time.time_ns()}"
        self._path = folder / f"{self._child}.jsonl"
        self._who = {"reader": reader, "worker": worker, "child": self._child}
        self._last: tuple[str, int] | None = None
        self._checkpointed_s = time.monotonic()

    def initialize(self, initialize_input: InitializeInput) -> None:
        """Note the shard and where it begins."""
        self._who["shard"] = initialize_input.shard_id or ""
        position = [initialize_input.sequence_number, initialize_input.sub_sequence_number or 0]
        self._note("began", position=position)

    def process_records(self, process_records_input: ProcessRecordsInput) -> None:
        """Note the records; checkpoint them now and then."""
        records = process_records_input.records
        if records:
            self._note("got", records=[identified(record) for record in records])
            self._last = _place(records[-1])
        if time.monotonic() - self._checkpointed_s >= _CHECKPOINT_EVERY_S:
            self._checkpoint(process_records_input.checkpointer)

    def lease_lost(self, lease_lost_input: LeaseLostInput) -> None:  # noqa: ARG002
        """Note it."""
        self._note("lost")

    def shard_ended(self, shard_ended_input: ShardEndedInput) -> None:
        """Checkpoint the end; without it the children of the shard are never read."""
        shard_ended_input.checkpointer.checkpoint()
        self._note("confirmed", position=["SHARD_END", 0])

    def shutdown_requested(self, shutdown_requested_input: ShutdownRequestedInput) -> None:
        """Checkpoint all, so that nothing is delivered again."""
        self._checkpoint(shutdown_requested_input.checkpointer)

    def _checkpoint(self, checkpointer: Checkpointer) -> None:
        if self._last is None:
            return
        try:
            checkpointer.checkpoint(*self._last)
        except CheckpointError as error:
            self._note("refused", error=error.value)
            return
        self._note("confirmed", position=self._last)
        self._last, self._checkpointed_s = None, time.monotonic()

    def _note(self, what: str, **fields: Any) -> None:
        line = json.dumps({"what": what, "at": time.time(), **self._who, **fields}) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line)


def _place(record: Record) -> tuple[str, int]:
    return record.sequence_number or "", record.sub_sequence_number or 0


def identified(record: Record) -> list[Any]:
    """Sequence number, sub-sequence number, key and number within the key of a user record."""
    payload = json.loads(record.binary_data)
    if "dynamodb" not in payload:
        return [*_place(record), record.partition_key, payload["n"]]
    change = payload["dynamodb"]
    is_removed = payload["eventName"] == _REMOVED
    image = change["OldImage" if is_removed else "NewImage"]
    return [*_place(record), change["Keys"]["id"]["S"], int(image["n"]["N"]) + is_removed]


def main() -> None:
    """Serve the daemon until it closes stdin."""
    folder, reader, worker = (
        os.environ[VARIABLE + name] for name in ("FOLDER", "READER", "WORKER")
    )
    run(Recorder(Path(folder), reader, worker))


if __name__ == "__main__":
    main()
