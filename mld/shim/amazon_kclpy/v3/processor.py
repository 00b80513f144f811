"""Version 3 record processors, and version 2 ones in their clothes."""

from amazon_kclpy.messages import ShutdownInput


class RecordProcessorBase:
    """A version 3 record processor, the current kind."""

    version = 3

    def initialize(self, initialize_input):
        """Called once, before any records, with an InitializeInput."""
        raise NotImplementedError

    def process_records(self, process_records_input):
        """Called with each batch, a ProcessRecordsInput."""
        raise NotImplementedError

    def lease_lost(self, lease_lost_input):
        """Another worker has the shard; it is too late to checkpoint."""
        raise NotImplementedError

    def shard_ended(self, shard_ended_input):
        """The shard has no more records: checkpoint, or its children are never read."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input):
        """The daemon is about to stop; a last chance to checkpoint."""
        raise NotImplementedError


class V2toV3Processor(RecordProcessorBase):
    """A version 2 processor as a version 3 one."""

    def __init__(self, delegate):
        self.delegate = delegate

    def initialize(self, initialize_input):
        self.delegate.initialize(initialize_input)

    def process_records(self, process_records_input):
        self.delegate.process_records(process_records_input)

    def lease_lost(self, lease_lost_input):
        self.delegate.shutdown(ShutdownInput.zombie())

    def shard_ended(self, shard_ended_input):
        self.delegate.shutdown(ShutdownInput.terminate(shard_ended_input.checkpointer))

    def shutdown_requested(self, shutdown_requested_input):
        self.delegate.shutdown_requested(shutdown_requested_input)
