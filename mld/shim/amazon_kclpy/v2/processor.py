"""Version 2 record processors, and version 1 ones in their clothes."""


class RecordProcessorBase:
    """A version 2 record processor."""

    version = 2

    def initialize(self, initialize_input):
        """Called once, before any records, with an InitializeInput."""
        raise NotImplementedError

    def process_records(self, process_records_input):
        """Called with each batch, a ProcessRecordsInput."""
        raise NotImplementedError

    def shutdown(self, shutdown_input):
        """The end, a ShutdownInput; checkpoint when its reason is ``TERMINATE``."""
        raise NotImplementedError

    def shutdown_requested(self, shutdown_requested_input):
        """The daemon is about to stop; a last chance to checkpoint. Does nothing by default."""


class V1toV2Processor(RecordProcessorBase):
    """A version 1 processor as a version 2 one."""

    def __init__(self, delegate):
        self.delegate = delegate

    def initialize(self, initialize_input):
        self.delegate.initialize(initialize_input.shard_id)

    def process_records(self, process_records_input):
        self.delegate.process_records(
            process_records_input.records, process_records_input.checkpointer
        )

    def shutdown(self, shutdown_input):
        self.delegate.shutdown(shutdown_input.checkpointer, shutdown_input.reason)

    def shutdown_requested(self, shutdown_requested_input):
        self.delegate.shutdown_requested(shutdown_requested_input.checkpointer)
