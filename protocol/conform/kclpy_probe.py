"""A program for ``amazon_kclpy`` that does what the kit's records order, to judge kclpy itself.

The data of a record is an order: ``raise`` or ``checkpoint``. What happens inside the program shows
on stderr as ``probe: …`` lines. ``PROBE_VERSION`` (1, 2, 3) selects the generation of the processor.
Runs on every Python that kclpy supports; imports nothing of this package.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from amazon_kclpy import kcl  # type: ignore[import-not-found,unused-ignore]


def log(text: str) -> None:
    """Write a line that the kit expects."""
    sys.stderr.write("probe: " + text + "\n")
    sys.stderr.flush()


def checkpoint(checkpointer: Any) -> None:
    """Checkpoint and report the result."""
    try:
        checkpointer.checkpoint()
    except kcl.CheckpointError as error:
        log("CheckpointError value=" + repr(error.value) + " str=" + str(error))
    else:
        log("checkpoint stored")


class Processor:
    """A processor of either generation."""

    version = int(os.environ.get("PROBE_VERSION", "3"))

    def initialize(self, _start: Any) -> None:
        """Greet."""
        log("initialize")

    def process_records(self, batch: Any, checkpointer: Any = None) -> None:
        """Obey the records."""
        records = batch if self.version == 1 else batch.records
        checkpointer = checkpointer or batch.checkpointer
        for record in records:
            if record.binary_data == b"raise":
                raise ValueError("as ordered")
            if record.binary_data == b"checkpoint":
                checkpoint(checkpointer)

    def lease_lost(self, _lost: Any) -> None:
        """Version 3."""
        log("lease_lost")

    def shard_ended(self, ended: Any) -> None:
        """Version 3."""
        log("shard_ended")
        checkpoint(ended.checkpointer)

    def shutdown_requested(self, _notice: Any) -> None:
        """All versions."""
        log("shutdown_requested")

    def shutdown(self, first: Any, reason: str = "") -> None:
        """Versions 1 (checkpointer, reason) and 2 (one input)."""
        reason = reason or first.reason
        log("shutdown reason=" + reason)
        checkpoint(first if self.version == 1 else first.checkpointer)


if __name__ == "__main__":
    kcl.KCLProcess(Processor()).run()
