"""Directories and files of an output: where they are, and that they are on their disk."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from mld.spark.errors import SinkRefused

#: Characters that Spark reads as a pattern in a path.
_PATTERN = set("*?[]{}\\")
#: What delta-rs takes for an escaped character, so that it looks in another directory.
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


def local_root(text: str, sink: str = "delta", key: str = "spark.sink.path") -> Path:
    """The directory that a property names.

    Args:
        text: a path, or a URL with the scheme ``file``.
        sink: value of ``spark.sink``, for messages.
        key: the property, for messages.

    Raises:
        SinkRefused: it is on no file system.
    """
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        if rest.startswith("//") and not rest.startswith("///"):
            raise SinkRefused(f"{key}={text}: write it like file:/directory")
        text = "/" + rest.lstrip("/")
    elif colon and "/" not in scheme and rest.startswith("/"):
        raise SinkRefused(
            f"{key}={text}: the {sink} sink writes to S3, or to a file system of this machine, and "
            f"{scheme}:// is neither. Name a directory or s3://bucket/prefix"
        )
    if found := sorted(_PATTERN & set(text)):
        raise SinkRefused(
            f"{key}={text}: Spark reads {' '.join(found)} as a pattern; choose a directory without"
        )
    if (escape := _ESCAPE.search(text)) is not None:
        raise SinkRefused(
            f"{key}={text}: delta-rs reads {escape[0]} as an escaped character; choose a directory "
            f"without"
        )
    return Path(os.path.abspath(text))


def native(root: Path, path: str) -> bytes:
    """A path below a directory as every reader spells it, whatever encoding the locale has.

    Args:
        root: the directory.
        path: with slashes.
    """
    return os.fsencode(root) + b"/" + path.encode()


def sync(path: Path | bytes) -> None:
    """Wait until a file's content, or the names in a directory, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(directory: Path) -> None:
    """Create a directory and its parents, durably."""
    if directory.is_dir():
        return
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            each.mkdir()
        sync(each.parent)
