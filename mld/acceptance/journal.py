"""The journal of a run: what it is about to create, on disk before it is created."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from kcl_mld.acceptance.options import PREFIX_FORM, Names
from kcl_mld.acceptance.rules.resource import JournalEntry, Resource, ResourceKind
from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

VERSION = 1
_RUN_ID = re.compile(r"[0-9a-f]{10}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalledRun:
    """Whose journal it is.

    Attributes:
        account: twelve digits.
        limit_s: of the run.
        endpoints: where its services are; see :class:`kcl_mld.acceptance.options.Options`.
    """

    account: str
    region: str
    names: Names
    limit_s: float
    endpoints: Mapping[str, str]


class Journal:
    """Appends lines, each of which is on the disk when the call returns.

    Args:
        path: must not exist.
        wall: epoch seconds.

    Raises:
        ConfigError: the file exists, or can't be written.
    """

    def __init__(
        self, path: Path, run: JournalledRun, *, wall: Callable[[], float] = time.time
    ) -> None:
        self._wall = wall
        self.path = path
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            _sync_folder(path)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        self._append(
            what="run",
            version=VERSION,
            account=run.account,
            region=run.region,
            prefix=run.names.prefix,
            run_id=run.names.run_id,
            limit_s=run.limit_s,
            endpoints=dict(run.endpoints),
        )

    def announce(self, resource: Resource) -> JournalEntry:
        """Say that a resource is about to be created; on disk before this returns."""
        at_s = self._append(
            what="creates", kind=resource.kind, name=resource.name, owner=resource.owner
        )
        return JournalEntry(resource, at_s)

    def created(self, resource: Resource, created_s: float) -> None:
        """Say when AWS created it."""
        self._append(
            what="created",
            kind=resource.kind,
            name=resource.name,
            owner=resource.owner,
            created_s=created_s,
        )

    def close(self) -> None:
        """Write no more."""
        os.close(self._fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _append(self, **fields: Any) -> float:
        at_s = self._wall()
        line = json.dumps({"at_s": at_s, **fields}) + "\n"
        os.write(self._fd, line.encode())
        os.fsync(self._fd)
        return at_s


def hold(path: Path) -> int:
    """A descriptor of a journal: until each process that has it has closed it or ended, the run goes on."""
    fd = os.open(path, os.O_RDONLY | os.O_CREAT, 0o600)
    fcntl.flock(fd, fcntl.LOCK_SH)
    return fd


def is_open(path: Path) -> bool:
    """Whether the run of this journal, or a worker that it started, is still going on."""
    with path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _sync_folder(path: Path) -> None:
    """Make sure that the file is found again after a crash of the machine."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_journal(path: Path) -> tuple[JournalledRun, tuple[JournalEntry, ...]]:
    """The run of a journal and what it announced, in order. A last line that is cut off counts for nothing.

    Raises:
        ConfigError: the file can't be read, or is no journal of this version.
    """
    try:
        lines = path.read_text("utf-8").split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return _parsed([json.loads(line) for line in lines])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise ConfigError(f"{path} is no journal of kcl-mld acceptance") from None


def _parsed(
    lines: Iterable[dict[str, Any]],
) -> tuple[JournalledRun, tuple[JournalEntry, ...]]:
    head, *rest = lines
    names = Names(prefix=head["prefix"], run_id=head["run_id"])
    is_ours = head["what"] == "run" and head["version"] == VERSION
    if not is_ours or not (PREFIX_FORM.fullmatch(names.prefix) and _RUN_ID.fullmatch(names.run_id)):
        raise ValueError(head)
    run = JournalledRun(
        account=head["account"],
        region=head["region"],
        names=names,
        limit_s=float(head["limit_s"]),
        endpoints=dict(head["endpoints"]),
    )
    entries: dict[Resource, JournalEntry] = {}
    for line in rest:
        resource = Resource(ResourceKind(line["kind"]), line["name"], line["owner"])
        if line["what"] == "creates":
            entries[resource] = JournalEntry(resource, float(line["at_s"]))
        elif line["what"] == "created":
            entries[resource] = replace(entries[resource], created_s=float(line["created_s"]))
    return run, tuple(entries.values())
