"""Records conversations of children as files, in the format of ``kcl_mld_protocol.transcripts``.

Recordings are for debugging: they never delay or fail a child. A write error ends the recording
with one warning.
"""

from __future__ import annotations

import logging
import os
import re
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.errors import ConfigError
from kcl_mld_protocol.connection import MAX_CHILD_LINE_BYTES
from kcl_mld_protocol.errors import LineTooLong
from kcl_mld_protocol.linebuffer import LineBuffer
from kcl_mld_protocol.transcripts import INPUT_ENDS, Direction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld.children.ports import Child, ChildLauncher
    from kcl_mld.kernel.ports import Clock

log = logging.getLogger("mld.children")

#: Size limit of one file in bytes; the rest of the conversation is left out.
MAX_FILE_BYTES = 64 * 1024 * 1024
_DATA = re.compile(rb'("data":)"[A-Za-z0-9+/=]*"')
_NO_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]")


def recording_name(env: Mapping[str, str]) -> str:
    """How the name of a child's file begins: its lease, and its index among several children."""
    name = _NO_FILE_NAME.sub("_", env.get("KCL_LEASE_KEY", "child"))
    return f"{name}-child-{env['KCL_MLD_CHILD']}" if "KCL_MLD_CHILD" in env else name


class RecordingLauncher:
    """Starts children by another launcher and records what daemon and child write."""

    def __init__(
        self, launcher: ChildLauncher, folder: str, clock: Clock, *, with_payloads: bool
    ) -> None:
        """Create the folder if it does not exist.

        Raises:
            ConfigError: files can't be created in it.
        """
        self._launcher = launcher
        self._folder = Path(folder)
        self._clock = clock
        self._with_payloads = with_payloads
        self._started = 0
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: {error.strerror}", key="recordTo") from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise ConfigError(f"{folder}: may not be written", key="recordTo")

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_stderr: Callable[[bytes], None],
    ) -> Child:
        """Start a child and a file for it.

        Raises:
            OSError: the program cannot be started.
        """
        self._started += 1
        name = recording_name(env)
        recorded: list[Transcript] = []

        def hear(line: bytes) -> None:
            on_stderr(line)
            for transcript in recorded:
                transcript.add(Direction.CHILD_STDERR, line)

        child = await self._launcher.start(argv, env, hear)
        path = self._folder / f"{name}-{os.getpid()}-{self._started}.txt"
        recorded.append(Transcript(path, self._clock, with_payloads=self._with_payloads))
        return RecordedChild(child, recorded[0])


class Transcript:
    """One file; each line is written at once, so that a crash loses none."""

    def __init__(self, path: Path, clock: Clock, *, with_payloads: bool) -> None:
        """Begin the file, readable by its owner only."""
        self._path = path
        self._clock = clock
        self._began_at = clock.monotonic()
        self._with_payloads = with_payloads
        self._left = MAX_FILE_BYTES
        self._file: FileIO | None = None
        try:
            self._file = FileIO(path, "xb", opener=lambda name, flags: os.open(name, flags, 0o600))
        except OSError as error:
            self._give_up(str(error))

    def add(self, direction: Direction, line: bytes) -> None:
        """Add one line, without its end.

        Records' base64 is left out unless payloads are recorded.
        """
        if self._file is None:
            return
        if direction is Direction.TO_CHILD and not self._with_payloads:
            line = _DATA.sub(rb'\1""', line)
        at_s = self._clock.monotonic() - self._began_at
        entry = b"%.6f %s %s\n" % (at_s, direction.value.encode(), line)
        self._left -= len(entry)
        if self._left < 0:
            self._give_up(f"it has {MAX_FILE_BYTES} bytes")
            return
        try:
            self._file.write(entry)
        except OSError as error:
            self._give_up(str(error))

    def _give_up(self, why: str) -> None:
        log.warning("%s: the rest is not recorded: %s", self._path, why)
        self._file = None


class RecordedChild:
    """A child whose conversation is recorded; see :class:`~kcl_mld.children.ports.Child`."""

    def __init__(self, child: Child, transcript: Transcript) -> None:
        """Start recording."""
        self._child = child
        self._transcript = transcript
        self._output = LineBuffer(MAX_CHILD_LINE_BYTES)
        self._has_exited = False

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    async def write(self, data: bytes) -> None:
        """Write and record a line."""
        self._transcript.add(Direction.TO_CHILD, data.rstrip(b"\n"))
        await self._child.write(data)

    async def read(self) -> bytes:
        """Read, and record the lines that are complete."""
        data = await self._child.read()
        if not self._output.ended:
            self._output.feed(data)
        while (line := self._next_line()) is not None:
            self._transcript.add(Direction.FROM_CHILD, line)
        return data

    def _next_line(self) -> bytes | None:
        try:
            return self._output.next_line()
        except LineTooLong as error:
            return error.prefix

    async def close_stdin(self) -> None:
        """Close the child's stdin."""
        self._transcript.add(Direction.EVENT, INPUT_ENDS)
        await self._child.close_stdin()

    async def wait(self) -> int:
        """Exit status."""
        status = await self._child.wait()
        if not self._has_exited:
            self._has_exited = True
            self._transcript.add(Direction.EVENT, b"child exit rc=%d" % status)
        return status

    def read_stderr(self) -> None:
        """Process the stderr written so far."""
        self._child.read_stderr()

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._child.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._child.kill()
