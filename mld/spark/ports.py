"""The surfaces between the parts of the Spark child.

Session -> engine -> sink: the engine knows no sink by name, a sink knows no protocol, and nobody
but the launcher knows how a server is started.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from pyspark.sql import SparkSession

    from kcl_mld.spark.model import Position, ShardBatch, ShardKey

#: URL and token of a server.
Address: TypeAlias = tuple[str, str | None]


class Sessions(Protocol):
    """Where a session comes from; safe to ask from any thread."""

    def get(self) -> SparkSession:
        """The live session; a new one if the server dropped the old one.

        Raises:
            SparkUnreachable: there is no server.
        """

    def renew(self, lost: SparkSession | None = None) -> None:
        """Have ``get`` make a new session, unless another one than ``lost`` is live; None = any."""

    def start(self, session: SparkSession, work: Callable[[], None]) -> None:
        """Have something called in the thread whose active session it is; returns at once.

        Args:
            work: raises nothing.
        """

    def interrupt(self, tag: str) -> None:
        """End the operations that carry a tag; quiet if there are none."""

    def close(self) -> None:
        """Let go of the server; at most a few seconds."""


class CommitOutcome(StrEnum):
    """What became of one shard's batch in a commit for several."""

    STANDS = "stands"
    """It is durable and visible, by this process."""
    LOST = "lost"
    """Another writer has moved the shard's mark: this hold of it ends; nothing was committed."""
    AGAIN = "again"
    """Nothing was committed: write again, without those that are lost."""


def outcomes(
    batches: Sequence[ShardBatch], lost: Collection[ShardKey]
) -> Mapping[ShardKey, CommitOutcome]:
    """Of a commit that some shards have lost."""
    return {
        batch.shard: CommitOutcome.LOST if batch.shard in lost else CommitOutcome.AGAIN
        for batch in batches
    }


class Sink(Protocol):
    """Where rows become durable. One instance a process, called from several threads.

    The order of calls for a job is ``write``, then ``commit_all`` if all its batches are still
    wanted, then ``discard``, always. Before the first batch of a shard comes ``mark``.

    ``write`` and ``commit_all`` run in threads that are given up when their time is over
    (``kcl_mld.spark.calls``): such a thread may go on for a while, so neither holds a lock across
    anything that may hang, and both ask ``raise_if_abandoned`` before a step that others would see.
    """

    def prepare(self, spark: SparkSession) -> None:
        """Look whether the promise can be kept there; called once, before any shard.

        Raises:
            SinkRefused: it cannot; the message names a way out.
        """

    def mark(self, shard: ShardKey) -> Position | None:
        """The last position of the shard that is durable in the sink; None = nothing known."""

    def write(self, frame: Any, batches: Sequence[ShardBatch]) -> Any:
        """Run the Spark job; nothing of it is visible before the commit.

        Args:
            frame: what the function returned for all batches: a DataFrame, several by the names
                of their outputs, or None if it wrote itself. The engine has seen that it fits.
            batches: at least one, each of another shard.

        Returns:
            what ``commit_all`` and ``discard`` need.
        """

    def commit_all(
        self, staged: Any, batches: Sequence[ShardBatch]
    ) -> Mapping[ShardKey, CommitOutcome]:
        """Make all batches of a job durable and visible in one step, or none of them.

        What was staged has the rows of all of them, so it is of no use once one is not wanted any
        more: then the job is discarded and the others are written again.

        It may be given up when its time is over. Then this process neither repeats it nor removes
        what was staged while it goes on; but the shards' next sessions, perhaps in this process,
        ask ``mark`` and write anew. What keeps the two apart is the sink's own proof that a
        position is extended once: the marks, which the commit compares and moves in one step.

        Args:
            staged: what ``write`` returned.
            batches: exactly those that it was called with.

        Returns:
            for each shard what became of its batch: ``STANDS`` for all, or for none.

        Raises:
            Exception: it isn't known whether it stands, and asking failed, too. The batches may be
                written again: if it stands, that commit finds the marks moved, and the shards'
                next hold asks ``mark``.
        """

    def discard(self, staged: Any) -> None:
        """Remove what is left of a job; never raises for what is not there.

        Not called while the commit of the job may go on.
        """


@runtime_checkable
class CancelsCommits(Protocol):
    """A sink that can hasten the end of a commit whose time is over, or that lost a shard."""

    def cancel(self, batches: Sequence[ShardBatch]) -> None:
        """Interrupt the commit of batches, if there is one; from another thread, perhaps twice."""


#: Counted by sinks that write to S3.
REQUESTS = "requests to S3"


@runtime_checkable
class Counts(Protocol):
    """A sink that counts what its commits cost."""

    def counts(self) -> Mapping[str, int]:
        """Since this process began, by what is counted, in words for the log."""
