"""The loop that reads the daemon's messages, calls the record processor and reports.

stdout belongs to the protocol. What a program prints there by itself reaches the daemon's log,
because each message stands on a line of its own, whatever was printed before it.
"""

import faulthandler
import json
import os
import signal
import sys
import traceback

from amazon_kclpy import dispatch, messages
from amazon_kclpy.checkpoint_error import CheckpointError
from amazon_kclpy.stdin_lines import StdinLines, lines_of
from amazon_kclpy.v2 import processor as v2processor
from amazon_kclpy.v3 import processor as v3processor

try:
    from amazon_kclpy.batch_decoder import decode_batch
except ImportError:  # this interpreter lacks msgspec

    def decode_batch(_line):
        """Json has to decode it."""


__all__ = ["CheckpointError", "Checkpointer", "KCLProcess", "RecordProcessorBase"]


class _IOHandler:
    """The three streams."""

    def __init__(self, input_file, output_file, error_file):
        self.input_file = input_file
        self.output_file = output_file
        self.error_file = error_file
        self._lines = None

    def read_line(self):
        """Next line, as text or bytes; an empty one at the end."""
        if self._lines is None:  # only now, as the program may have read from it before
            self._lines = lines_of(self.input_file)
        return self._lines.readline()

    def write_line(self, line):
        """Write a line of its own, whatever is on the current one."""
        self.output_file.write("\n%s\n" % line)
        self.output_file.flush()

    def write_error(self, error_message):
        """Tell people, not the daemon."""
        self.error_file.write("%s\n" % error_message)
        self.error_file.flush()

    def load_action(self, line):
        """The message in a line of text or bytes."""
        message = decode_batch(line)
        if message is None:
            if isinstance(line, bytes) and isinstance(self._lines, StdinLines):
                line = self._lines.text(line)
            message = json.loads(line, object_hook=dispatch.message_decode)
        return message

    def write_action(self, response):
        """Send a message."""
        self.write_line(json.dumps(response))


class Checkpointer:
    """Asks the daemon to remember how far the records are processed."""

    def __init__(self, io_handler):
        self.io_handler = io_handler

    def checkpoint(self, sequence_number=None, sub_sequence_number=None):
        """Checkpoint at this position, or at the end of the current batch without one.

        Raises:
            CheckpointError: it was not written; its ``value`` says why.
        """
        self.io_handler.write_action(
            {
                "action": "checkpoint",
                "sequenceNumber": sequence_number,
                "subSequenceNumber": sub_sequence_number,
            }
        )
        answer = self.io_handler.load_action(self.io_handler.read_line())
        if not isinstance(answer, messages.CheckpointInput):
            # The daemon answers a checkpoint before it says anything else.
            raise CheckpointError("InvalidStateException")
        if answer.error is not None:
            raise CheckpointError(answer.error)


class RecordProcessorBase:
    """A version 1 record processor; new programs derive from that of ``amazon_kclpy.v3``."""

    version = 1

    def initialize(self, shard_id):
        """Called once, before any records."""
        raise NotImplementedError

    def process_records(self, records, checkpointer):
        """Called with each batch: a list of records, and what writes checkpoints."""
        raise NotImplementedError

    def shutdown(self, checkpointer, reason):
        """The end: ``ZOMBIE`` after a lost lease, ``TERMINATE`` (checkpoint!) after a shard end."""
        raise NotImplementedError

    def shutdown_requested(self, checkpointer):
        """The daemon is about to stop; a last chance to checkpoint. Does nothing by default."""


class KCLProcess:
    """The program's side of the protocol."""

    def __init__(
        self,
        record_processor,
        input_file=sys.stdin,
        output_file=sys.stdout,
        error_file=sys.stderr,
    ):
        self.io_handler = _IOHandler(input_file, output_file, error_file)
        self.checkpointer = Checkpointer(self.io_handler)
        if record_processor.version == 1:
            record_processor = v2processor.V1toV2Processor(record_processor)
        if record_processor.version == 2:
            record_processor = v3processor.V2toV3Processor(record_processor)
        self.processor = record_processor

    def run(self):
        """Serve the daemon until it closes stdin."""
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            # The daemon sends it to a program that hangs: its log shows where.
            faulthandler.register(signal.SIGTERM, file=2, chain=True)
            os.register_at_fork(after_in_child=lambda: faulthandler.unregister(signal.SIGTERM))
        while True:
            line = self.io_handler.read_line()
            if not line:
                return
            self._serve(line)

    def _serve(self, line):
        message = self.io_handler.load_action(line)
        try:
            message.dispatch(self.checkpointer, self.processor)
        except Exception as error:
            # Reported as done all the same: that is the contract that programs rely on, an error
            # must not end the process.
            self.io_handler.write_error(
                "Caught exception from action dispatch: %s%s"
                % (error, traceback.format_exc().rstrip("\n"))
            )
        self.io_handler.write_action({"action": "status", "responseFor": message.action})
