"""The error of a refused checkpoint."""


class CheckpointError(Exception):
    """The daemon did not write the checkpoint.

    ``value`` names the reason, for example ``ShutdownException`` (the lease is lost: stop),
    ``ThrottlingException`` or ``KinesisClientLibDependencyException`` (wait and try again) or
    ``InvalidStateException``.
    """

    def __init__(self, value):
        super().__init__(value)
        self.value = value

    def __str__(self):
        return repr(self.value)
