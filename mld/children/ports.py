"""What the consumers of shards need: children, and a place for dead letters."""

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
        """What stdout has, at least one byte; ``b""`` at its end. Only one reader at a time."""
        ...

    async def close_stdin(self) -> None:
        """End of file for the child; may be called again."""
        ...

    async def wait(self) -> int:
        """Exit status, negative = signal number. Returns at once when it has already ended."""
        ...

    def read_stderr(self) -> None:
        """Pass on now what its stderr holds: all that it wrote there before what stdout has said."""
        ...

    def terminate(self) -> None:
        """SIGTERM to its process group; nothing when it is gone."""
        ...

    def kill(self) -> None:
        """SIGKILL to its process group; nothing when it is gone."""
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
            on_stderr: called with each line of its stderr, without the line end, from birth on.

        Raises:
            OSError: the program cannot be started.
        """
        ...


class LetterStore(Protocol):
    """Keeps documents by their ids; the same id again overwrites, or its readers see that it is one."""

    async def put(self, letter_id: str, shard_id: str, document: bytes) -> None:
        """Keep a document for good; on return it survives a crash.

        Raises:
            LetterRefused: it is not known to be kept.
        """
        ...
