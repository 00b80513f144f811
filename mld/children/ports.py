"""What shard consumers need from outside: child processes, and a store for dead letters.

And what a child's conversation needs of its shard: checkpoints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


class Child(Protocol):
    """A running child in a session of its own, with its three pipes."""

    @property
    def pid(self) -> int:
        """Process id; also the id of its session and process group."""
        ...

    async def write(self, data: bytes) -> None:
        """Write all of it, waiting while the pipe is full.

        Raises:
            BrokenPipeError: the child closed its stdin or is gone.
        """
        ...

    async def read(self) -> bytes:
        """Read from stdout, at least one byte; ``b""`` at its end. One reader at a time."""
        ...

    async def close_stdin(self) -> None:
        """End of file for the child; may be called again."""
        ...

    async def wait(self) -> int:
        """Exit status, negative = signal number. Returns at once when it has already ended."""
        ...

    def read_stderr(self) -> None:
        """Process the stderr written so far: all that preceded the latest message on stdout."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM to its process group; does nothing when it is gone."""
        ...

    def kill(self) -> None:
        """Send SIGKILL to its process group; does nothing when it is gone."""
        ...


class Checkpointer(Protocol):
    """Answers the checkpoint requests of one child."""

    async def checkpoint(
        self, sequence_number: str | None, sub_sequence_number: int | None
    ) -> str | None:
        """Store a position.

        Args:
            sequence_number: as requested; None = the largest position handed out to the child.
            sub_sequence_number: as requested.

        Returns:
            None when it is stored, else the error name for the child.
        """
        ...


class ChildLauncher(Protocol):
    """Starts children."""

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_stderr: Callable[[bytes], None],
    ) -> Child:
        """Start a program, found by PATH, without a shell.

        Args:
            env: added to (and overriding) the daemon's own environment.
            on_stderr: called with each line of its stderr, without the line end, from the start on.

        Raises:
            OSError: the program can't be started.
        """
        ...


class LetterStore(Protocol):
    """Stores documents by id.

    A repeated id overwrites, or readers can see that it is a duplicate.
    """

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """Store a document durably; on return it survives a crash.

        Raises:
            LetterRefused: it may not be stored.
        """
        ...
