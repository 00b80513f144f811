"""Files of a table in a directory of this machine, durable once they are closed.

pyiceberg's own writer of local files leaves them to the system: after a power failure a catalog
that is durable may name files that are empty.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Self

from pyiceberg.io import FileIO, InputFile, OutputFile

if TYPE_CHECKING:
    from pyiceberg.io import InputStream, OutputStream


#: As pyiceberg writes it, and as Spark does.
_FILE, _FILE_OF_JAVA = "file://", "file:"


def path_of(location: str) -> str:
    """``file:///data/t``, ``file:/data/t`` or ``/data/t`` -> ``/data/t``; percent signs are part of the name.

    Raises:
        ValueError: it is elsewhere.
    """
    path = location.removeprefix(_FILE).removeprefix(_FILE_OF_JAVA)
    if not path.startswith("/"):
        raise ValueError(f"{location} is no file of this machine")
    return path


class LocalFile(InputFile, OutputFile):
    """A file that is read, or written once."""

    def __len__(self) -> int:
        return os.stat(path_of(self.location)).st_size

    def exists(self) -> bool:
        """Whether it is there."""
        return os.path.exists(path_of(self.location))

    def open(self, seekable: bool = True) -> InputStream:  # noqa: FBT001, FBT002 - theirs
        """Read it.

        Raises:
            FileNotFoundError: it is not there.
        """
        del seekable
        return open(path_of(self.location), "rb")

    def create(self, overwrite: bool = False) -> OutputStream:  # noqa: FBT001, FBT002 - theirs
        """Write it; it is durable once the stream is closed.

        Raises:
            FileExistsError: it is there, and not to be overwritten.
        """
        path = path_of(self.location)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return _Synced(path, "wb" if overwrite else "xb")

    def to_input_file(self) -> LocalFile:
        """The same, to be read."""
        return self


class _Synced:
    """A stream that syncs its file, and the directory that has its name, when it is closed."""

    def __init__(self, path: str, mode: str) -> None:
        self._path = path
        self._file = open(path, mode)  # noqa: SIM115 - closed below

    @property
    def closed(self) -> bool:
        return self._file.closed

    def write(self, data: bytes) -> int:
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        if self._file.closed:
            return
        with self._file:
            self._file.flush()
            os.fsync(self._file.fileno())
        sync_directory(os.path.dirname(self._path))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def sync_directory(path: str) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class LocalFiles(FileIO):
    """All files of a table."""

    def new_input(self, location: str) -> LocalFile:
        """A file to be read."""
        return LocalFile(location)

    def new_output(self, location: str) -> LocalFile:
        """A file to be written."""
        return LocalFile(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Remove a file; quiet if it is gone."""
        name = location if isinstance(location, str) else location.location
        try:
            os.unlink(path_of(name))
        except FileNotFoundError:
            return
