"""The parquet chain on a disk: reading markers, publishing a directory, durable to the last inode.

The one primitive is :func:`publish`: everything of a batch is written in staging, made durable, and
then appears under its final name by one ``rename(2)``, which refuses a target that isn't empty.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mld.spark.errors import SinkRefused
from mld.spark.parquet import chain, chain_layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.spark.model import Position

#: Characters that Spark reads as a pattern in a path.
_PATTERN = set("*?[]{}\\")
_TAKEN = {errno.ENOTEMPTY, errno.EEXIST}


class Taken(Exception):
    """The name is somebody's already."""


def local_root(text: str, sink: str = "parquet", key: str = "spark.sink.path") -> Path:
    """The directory that a property names.

    Args:
        text: a path, or a URL with the scheme ``file``.
        sink: value of ``spark.sink``, for messages.
        key: the property, for messages.

    Raises:
        SinkRefused: it is on no file system that has an atomic rename.
    """
    scheme, colon, rest = text.partition(":")
    if colon and scheme == "file":
        if rest.startswith("//") and not rest.startswith("///"):
            raise SinkRefused(f"{key}={text}: write it like file:/directory")
        text = "/" + rest.lstrip("/")
    elif colon and "/" not in scheme and rest.startswith("/"):
        raise SinkRefused(
            f"{key}={text}: the {sink} sink writes to a file system that this host and "
            f"Spark's executors share, which {scheme}:// is not. Name a directory"
        )
    if found := sorted(_PATTERN & set(text)):
        raise SinkRefused(
            f"{key}={text}: Spark reads {' '.join(found)} as a pattern; choose a directory without"
        )
    return Path(os.path.abspath(text))


def spark_url(path: Path) -> str:
    """The path for Spark, whatever its default file system is."""
    return f"file://{path}"


def read_marker(directory: Path) -> str | None:
    """The text of a directory's marker; None if there is none."""
    try:
        # Path.read_text is twice as slow, and a walk reads thousands.
        with open(f"{directory}/{chain_layout.MARKER}", encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def segment_names(shard: Path) -> list[str]:
    """Names in a shard's directory of segments, sorted."""
    try:
        return sorted(os.listdir(shard / chain_layout.SEGMENTS))
    except FileNotFoundError:
        return []


def walk_shard(shard: Path, begin: Position | None = None) -> Iterator[chain.Link]:
    """The links of a shard's directory in order; see :func:`mld.spark.parquet.chain.walk`."""
    segments = chain.longest_segments(segment_names(shard))
    return chain.walk(lambda name: read_marker(shard / name), segments, begin)


def find_last(shard: Path) -> chain.Link | None:
    """The last link of a shard; None if its chain is empty.

    The hint shortens the walk; without one, or with a wrong one, it begins at the beginning.
    """
    hinted: chain.Link | None = None
    with contextlib.suppress(OSError):
        hint = (shard / chain_layout.HINT).read_text(encoding="utf-8")
        hinted = chain.decode_hint(hint, lambda name: read_marker(shard / name))
    begin = None if hinted is None else hinted.to
    return chain.last(walk_shard(shard, begin)) or hinted


def write_hint(shard: Path, link: chain.Link, suffix: str) -> None:
    """Keep a link as the place where the next walk begins; quiet if that isn't possible."""
    draft = shard / f"{chain_layout.HINT}.{suffix}"
    with contextlib.suppress(OSError):
        draft.write_text(chain.encode_hint(link), encoding="utf-8")
        draft.replace(shard / chain_layout.HINT)


def claim(root: Path, application: str) -> None:
    """Write down whose output this is; the first one stays.

    Two applications under one path would take each other's records for their own.

    Raises:
        SinkRefused: it is another application's.
    """
    path = root / chain_layout.OWNER
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump({"format": chain_layout.FORMAT, "application": application}, file)
            sync_file(file.fileno())
        sync_directory(root)
    except FileExistsError:
        found = json.loads(path.read_text(encoding="utf-8") or "{}").get("application", application)
        if found != application:
            raise SinkRefused(
                f"spark.sink.path={root} is the output of the application {found!r}, not of "
                f"{application!r}: name another directory"
            ) from None


def sync_file(descriptor: int) -> None:
    """Wait until a file's content is on its disk."""
    os.fsync(descriptor)


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on its disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_up_to(root: Path, directory: Path) -> None:
    """Wait until the names in a directory, and those on the way to it, are on their disk.

    Args:
        root: the last one.
        directory: the first one; ``root`` or below it.
    """
    while directory != root:
        sync_directory(directory)
        directory = directory.parent
    sync_directory(root)


def make_directories(directory: Path) -> None:
    """Create a directory and its parents, durably."""
    if directory.is_dir():
        return
    missing = [each for each in (directory, *directory.parents) if not each.exists()]
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            each.mkdir()
        sync_directory(each.parent)


def seal(directory: Path, marker: chain_layout.Marker) -> None:
    """Write the marker into a directory in staging and make all of it durable.

    Args:
        directory: with the rows, or empty.
        marker: without the number of files, which is counted here.
    """
    paths = data_files(directory)
    with (directory / chain_layout.MARKER).open("w", encoding="utf-8") as file:
        file.write(replace(marker, files=len(paths)).encode())
        file.flush()
        sync_file(file.fileno())
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            sync_file(descriptor)
        finally:
            os.close(descriptor)
    sync_directory(directory)


def publish(source: Path, target: Path) -> None:
    """Give a sealed directory its final name, unless the name is taken.

    Raises:
        Taken: the name is somebody's.
        OSError: anything else; nothing was published.
    """
    make_directories(target.parent)
    try:
        os.rename(source, target)
    except OSError as error:
        if error.errno in _TAKEN:
            raise Taken(str(target)) from error
        raise
    sync_directory(target.parent)


def data_files(directory: Path) -> list[Path]:
    """The parquet files of a committed or staged directory, sorted by name."""
    with os.scandir(directory) as entries:
        names = sorted(each.name for each in entries if not each.name.startswith(("_", ".")))
    return [directory / name for name in names]
