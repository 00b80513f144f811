"""A Delta log as delta-rs keeps one, in memory, with a store that loses answers.

What it promises is what was seen of delta-rs: a commit on a snapshot is refused if one newer than
the snapshot names the same application id, whatever the numbers are; a change of the table's
metadata is refused if anything else changed it. Before a commit takes place others may act for
any time; after it the answer may be lost, the process killed, or the caller may give it up while it
goes on.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kcl_mld.spark.table.data_files import DataFile

FIELD = {"name": "n", "type": "long", "nullable": True, "metadata": {}}


class Refused(Exception):
    """Another commit came between."""


class AnswerLost(Exception):
    """Nobody knows whether the commit stands."""


class Killed(BaseException):
    """The process ended in the middle of a commit."""


class GivenUp(BaseException):
    """The caller waits no longer; the commit goes on."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A version of the table."""

    files: tuple[DataFile, ...]
    numbers: dict[str, int]
    properties: dict[str, str] | None = None


@dataclass(slots=True)
class PlayedLog:
    """The table; see the module."""

    world: object
    entries: list[Entry] = field(default_factory=list)

    def numbers(self, version: int) -> dict[str, int]:
        """The newest number by application id, up to a version."""
        found: dict[str, int] = {}
        for entry in self.entries[: version + 1]:
            found |= entry.numbers
        return found

    def files(self) -> list[DataFile]:
        """In the order of their commits."""
        return [file for entry in self.entries for file in entry.files]


class HostLog:
    """The log as one process uses it: the surface of ``kcl_mld.spark.table.delta_log.DeltaLog``."""

    is_fenced = True

    def __init__(self, log: PlayedLog, host) -> None:
        self._log, self._host = log, host

    def opened(self) -> Snapshot:
        """A table that is there, as it is now."""
        return Snapshot(self, self._log)

    @contextlib.contextmanager
    def snapshot(self):
        """The table as it is now; None if it is not there."""
        yield self.opened() if self._log.entries else None

    def to_append(self):
        """On a file system, the table as it is now."""
        return self.snapshot()

    def create(self, schema, partitions, configuration, transactions) -> None:
        """The first version, by one of all who try."""

        def apply() -> None:
            if self._log.entries:
                raise Refused
            self._log.entries.append(Entry((), dict(transactions), dict(configuration)))

        self.change(apply)

    def last_seen(self):
        """Nothing."""
        return

    def tells(self, version, transactions) -> bool:
        """Whether a version is a commit with these numbers."""
        found = self._log.entries[version].numbers if version < len(self._log.entries) else {}
        return transactions.items() <= found.items()

    def keep_short(self, version: int) -> bool:
        """Never due."""
        return False

    def change(self, apply) -> None:
        """Make a change, or don't, and say what has happened, or don't."""
        world, host = self._log.world, self._host
        world.meanwhile(host)
        fate = world.fate_of_commit()
        if fate == "goes on":
            host.actors.append(_later(apply, world))
            raise GivenUp
        if fate not in ("killed before", "lost before"):
            apply()
        if fate in ("killed before", "killed after"):
            world.bury(host)
            raise Killed
        world.meanwhile(host)
        if fate in ("lost before", "lost after"):
            world.note(f"{host.name}: the answer is lost")
            raise AnswerLost


class Snapshot:
    """The surface of ``kcl_mld.spark.table.delta_log.Snapshot``."""

    table_id = "table"
    partitions = ()
    features = ()
    fields = (FIELD,)
    is_sound = True
    stands = False

    def __init__(self, owner: HostLog, log: PlayedLog) -> None:
        self._owner, self._log = owner, log
        self.version = len(log.entries) - 1
        self._numbers = log.numbers(self.version)
        self.configuration: dict[str, str] = {}
        for entry in log.entries:
            self.configuration |= entry.properties or {}

    def number_of(self, application_id: str) -> int | None:
        return self._numbers.get(application_id)

    def still_has(self, application_id: str) -> bool:
        return application_id in self._numbers

    def restored_after(self, version: int) -> bool:
        return False

    def commit(self, files, transactions) -> None:
        self._owner.change(lambda: self._apply(Entry(tuple(files), dict(transactions))))

    def set_property(self, name, text, transactions) -> None:
        entry = Entry((), dict(transactions), {name: text})
        self._owner.change(lambda: self._apply(entry))

    def _apply(self, entry: Entry) -> None:
        newer = self._log.entries[self.version + 1 :] if self._owner.is_fenced else []
        for each in newer:
            if each.numbers.keys() & entry.numbers.keys():
                raise Refused
            if each.properties is not None or (entry.properties is not None and each.files):
                raise Refused
        self._log.entries.append(entry)


def _later(apply, world):
    for _ in range(world.dice.choice([1, 5, 50, 500])):
        yield
    with contextlib.suppress(Refused):
        apply()
        world.note("a commit that was given up stands")
