"""What can go wrong in the Spark child, with the exit code that the daemon sees."""

from __future__ import annotations


class SparkChildError(Exception):
    """Parent of them all.

    Attributes:
        exit_code: of the child process that serves the shard.
    """

    exit_code = 70


class SparkConfigError(SparkChildError):
    """A property, an app or an argument is wrong; nothing was processed. Correct it."""

    exit_code = 2


class MissingPart(SparkChildError):
    """Java, pyspark or a jar is missing; the message names what to install."""

    exit_code = 3


class SparkUnreachable(SparkChildError):
    """The Spark server cannot be started, reached, or refuses us."""

    exit_code = 69


class SinkRefused(SparkChildError):
    """The sink cannot keep its promise where it is asked to write; the message names a way out."""

    exit_code = 2


class SinkUnavailable(SparkChildError):
    """What the sink writes to cannot be reached, or refuses us; look at its address and password."""

    exit_code = 69


class BatchFailed(SparkChildError):
    """A batch of a shard could not be made durable; nothing after it is checkpointed."""


class Fenced(BatchFailed):
    """Another writer has extended the same position: this one has lost the shard."""


class RecordRefused(BatchFailed):
    """A record cannot be decoded, and the policy is to fail."""


class ResultTooLarge(Exception):
    """What the function returned is more than ``spark.sink.maxResultBytes``.

    Attributes:
        most_bytes: that bound.
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__(f"the function's rows are more than {most_bytes} bytes")
        self.most_bytes = most_bytes
