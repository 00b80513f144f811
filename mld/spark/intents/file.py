"""Intents as files: ``<path>/<application>/<stream>/<shard>/<epoch>/<number>.json``.

A file appears by ``link(2)`` of a synced temporary one: whole, and only if the number is free. That
holds on local file systems and on NFS; it needs a directory that all workers share.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from mld.spark.errors import BatchFailed, Fenced
from mld.spark.model import Position, WriteIntent, parse_position, position_text

if TYPE_CHECKING:
    from mld.spark.model import ShardKey

_DIGITS = 20
#: Files kept per shard; the newest is the intent, the one before shows what it followed.
_KEPT = 2


class FileIntentStore:
    """An ``IntentStore`` in a directory; safe from several threads and processes."""

    def __init__(self, root: str) -> None:
        """Make the directory.

        Args:
            root: ``spark.intent.path``.

        Raises:
            BatchFailed: it cannot be made or written to.
        """
        self._root = Path(root)
        try:
            self._root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unusable(self._root, error) from error

    def load(self, shard: ShardKey) -> WriteIntent | None:
        """The intent with the highest number.

        Raises:
            BatchFailed: it cannot be read.
        """
        directory = self._directory(shard)
        # The newest may be pruned between listing and reading, by a writer that is two ahead.
        for _ in range(10):
            if (number := _highest(directory)) == 0:
                return None
            with contextlib.suppress(FileNotFoundError):
                return _read(_file(directory, number))
        raise BatchFailed(f"{directory}: intents appear faster than they can be read")

    def store(self, shard: ShardKey, intent: WriteIntent) -> None:
        """Keep an intent durably.

        Raises:
            Fenced: somebody else has stored this number or a higher one.
            BatchFailed: the directory cannot be written to.
        """
        directory = self._directory(shard)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._append(directory, shard, intent)
            _prune(directory, intent.number)
        except OSError as error:
            raise _unusable(directory, error) from error

    def _append(self, directory: Path, shard: ShardKey, intent: WriteIntent) -> None:
        if (highest := _highest(directory)) > intent.number:
            raise _fenced(shard, intent, highest)
        target = _file(directory, intent.number)
        try:
            is_ours = _link(directory, target, _encode(intent)) or _read(target) == intent
        except FileNotFoundError:
            # A writer that is two ahead has swept the number, or our temporary file.
            if (highest := _highest(directory)) > intent.number:
                raise _fenced(shard, intent, highest) from None
            raise
        if not is_ours:
            raise _fenced(shard, intent, intent.number)
        # A slow writer may link a number that others have used and pruned meanwhile.
        if (highest := _highest(directory)) > intent.number:
            raise _fenced(shard, intent, highest)

    def _directory(self, shard: ShardKey) -> Path:
        parts = (shard.application, shard.stream, shard.shard_id, shard.epoch)
        return self._root.joinpath(*map(_part, parts))


def _part(text: str) -> str:
    quoted = quote(text, safe="") or "%"
    return quoted.replace(".", "%2E") if set(quoted) == {"."} else quoted


def _file(directory: Path, number: int) -> Path:
    return directory / f"{number:0{_DIGITS}d}.json"


def _numbers(directory: Path) -> list[int]:
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    stems = (name.removesuffix(".json") for name in names if name.endswith(".json"))
    return [int(stem) for stem in stems if stem.isascii() and stem.isdigit()]


def _highest(directory: Path) -> int:
    return max(_numbers(directory), default=0)


def _link(directory: Path, target: Path, text: str) -> bool:
    """Make the file whole and at once; False if the name is taken."""
    temporary = directory / f".{target.stem}.{uuid.uuid4().hex}.tmp"
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        _sync(directory)
        return True
    finally:
        temporary.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _prune(directory: Path, number: int) -> None:
    """Remove what is older than the newest two, and what dead writers left of them."""
    last = number - _KEPT
    for name in os.listdir(directory):
        stem = name.removeprefix(".").split(".")[0]
        if stem.isascii() and stem.isdigit() and int(stem) <= last:
            (directory / name).unlink(missing_ok=True)


def _encode(intent: WriteIntent) -> str:
    return json.dumps(
        {
            "number": intent.number,
            "after": position_text(intent.after),
            "to": str(intent.to),
            "appId": intent.app_id,
        }
    )


def _read(path: Path) -> WriteIntent:
    """An intent from its file.

    Raises:
        FileNotFoundError: it is gone.
        BatchFailed: it is no intent.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        to = Position.parse(found["to"])
        after = parse_position(found["after"])
        return WriteIntent(int(found["number"]), after, to, str(found["appId"]))
    except (ValueError, KeyError, TypeError) as error:
        raise BatchFailed(
            f"{path}: no intent ({error}); a wrong file here may double or lose a batch: restore it"
            " from a backup, or begin a new spark.sink.epoch"
        ) from error


def _fenced(shard: ShardKey, intent: WriteIntent, found: int) -> Fenced:
    return Fenced(
        f"{shard.shard_id}: batch {intent.number} was planned, but another worker has stored "
        f"number {found}: this one has lost the shard"
    )


def _unusable(path: Path, error: OSError) -> BatchFailed:
    return BatchFailed(
        f"spark.intent.path: {path}: {error.strerror or error}; the store needs a directory that "
        "this user may write to and all workers share"
    )
