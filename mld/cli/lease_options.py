"""Which leases a command shows: ``--worker``, ``--group`` and ``--stream``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from mld.decide.fleet.lease_list import matches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mld.decide.fleet.fleet_events import FleetEvent
    from mld.decide.fleet.lease_list import ListedLease

_OPTIONS = {
    "worker": "Only leases of this worker; may be repeated.",
    "group": "Only leases of workers of this workerGroup; may be repeated.",
    "stream": "Only leases of this stream; may be repeated.",
}


@dataclass(frozen=True, slots=True)
class LeaseChoice:
    """Names of which one must fit; without names of a kind each does."""

    workers: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    streams: tuple[str, ...] = ()

    def __str__(self) -> str:
        """As it is typed."""
        kinds = {"worker": self.workers, "group": self.groups, "stream": self.streams}
        return " ".join(f"--{kind} {name}" for kind, names in kinds.items() for name in names)

    @property
    def is_all(self) -> bool:
        """Nothing is left out."""
        return not (self.workers or self.groups or self.streams)

    def of(self, rows: Iterable[ListedLease]) -> tuple[ListedLease, ...]:
        """Those that are meant."""
        return tuple(one for one in rows if matches(one, self.workers, self.groups, self.streams))

    def events(
        self, events: Iterable[FleetEvent], rows: Iterable[ListedLease]
    ) -> tuple[FleetEvent, ...]:
        """Events of rows that are meant, and of workers that are."""
        if self.is_all:
            return tuple(events)
        keys = {one.lease.lease_key for one in rows}
        return tuple(
            event
            for event in events
            if event.subject in keys
            or not {event.subject, event.before, event.after}.isdisjoint(self.workers)
        )


def selects_leases(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the parameter ``choice``."""

    @functools.wraps(command)
    def with_choice(
        *args: Any,
        workers: tuple[str, ...],
        groups: tuple[str, ...],
        streams: tuple[str, ...],
        **options: Any,
    ) -> Any:
        return command(*args, choice=LeaseChoice(workers, groups, streams), **options)

    decorated: Callable[..., Any] = with_choice
    for name, text in reversed(_OPTIONS.items()):
        option = click.option(f"--{name}", f"{name}s", multiple=True, metavar="NAME", help=text)
        decorated = option(decorated)
    return decorated
