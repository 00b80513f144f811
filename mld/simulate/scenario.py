"""A scenario of ``kcl-mld simulate``: stream, workers, load, and what happens when."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from string import ascii_uppercase
from typing import TYPE_CHECKING, assert_never

from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import brief

if TYPE_CHECKING:
    import random

#: Units of a length of time, in seconds.
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|)")
_CHANGE = re.compile(r"(leader|[1-9][0-9]*)(?::([A-Za-z0-9_.]+))?@(.+)")
#: Groups that ``--groups`` can name: groupA to groupZ.
MAX_GROUPS = len(ascii_uppercase)
#: Workers that run at a time.
MAX_WORKERS = 1000
#: Most digits of a number of workers; longer texts are refused unread.
_MAX_DIGITS = 9
#: Of a hot stream: this share of its records goes to a tenth of its shards.
HOT_SHARE = 0.8


class ChangeKind(StrEnum):
    """How the membership of the fleet changes."""

    JOIN = "join"
    LEAVE = "leave"
    KILL = "kill"


class Load(StrEnum):
    """How the records are spread over the shards."""

    EVEN = "even"
    ZIPF = "zipf"
    RANDOM = "random"
    HOT = "hot"


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """Workers that start, stop or die together.

    Attributes:
        at_s: when, seconds from the start of the simulation.
        count: how many workers, >= 1.
        group: which group they belong to; None = spread over the groups.
        is_leader: the change applies to the leader; ``count`` is 1.
    """

    kind: ChangeKind
    at_s: float
    count: int
    group: str | None = None
    is_leader: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A simulation as the user asked for it.

    Attributes:
        workers: at the start, >= 1.
        groups: names of the groups over which they are spread.
        shards: each one has a lease, >= 1.
        failover_s: ``failoverTimeMillis`` of all workers.
        duration_s: length of the simulation, > 0.
        changes: in any order.
        records_per_s: of all shards together, > 0.
        record_bytes: size of a record, > 0.
        checkpoint_every_s: pause between two checkpoints of a shard, > 0.
        max_leases: ``maxLeasesForWorker``.
        max_steal: ``maxLeasesToStealAtOneTime``.
        answer_s: from a write on a row to its answer, > 0.
    """

    workers: int
    groups: tuple[str, ...]
    shards: int
    failover_s: float = 10.0
    duration_s: float = 1800.0
    changes: tuple[MembershipChange, ...] = ()
    load: Load = Load.EVEN
    records_per_s: float = 1000.0
    record_bytes: int = 1000
    checkpoint_every_s: float = 10.0
    max_leases: int = 2**31 - 1
    max_steal: int = 1
    answer_s: float = 0.01


def group_names(count: int) -> tuple[str, ...]:
    """``groupA``, ``groupB`` and so on.

    Args:
        count: 1 to :data:`MAX_GROUPS`.
    """
    return tuple(f"group{letter}" for letter in ascii_uppercase[:count])


def parse_duration(text: str, *, key: str) -> float:
    """Seconds of ``10s``, ``5m``, ``1.5h``, ``250ms`` or ``90``.

    Raises:
        ConfigError: another form, or more than a float holds.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{brief(text)!r} is not a length of time, such as 10s, 5m or 1h", key=key
        )
    seconds = float(found[1]) * _UNITS[found[2]]
    if not math.isfinite(seconds):
        raise ConfigError(f"{brief(text)} is too long a time", key=key)
    return seconds


def parse_change(kind: ChangeKind, text: str, *, key: str) -> MembershipChange:
    """A change as the command line has it: ``20@5m``, ``20:groupB@5m`` or ``leader@8m``.

    Args:
        text: count, group or not, and time.

    Raises:
        ConfigError: another form, or a count that has no end.
    """
    found = _CHANGE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{brief(text)!r} is not COUNT@TIME or COUNT:GROUP@TIME, such as 3@8m or 3:groupB@8m",
            key=key,
        )
    who, group, at = found.groups()
    at_s = parse_duration(at, key=key)
    if who != "leader":
        if len(who) > _MAX_DIGITS:  # which Python may refuse to read
            raise ConfigError(
                f"{brief(who)} workers at {at_s:g} s; at most {MAX_WORKERS} are simulated", key=key
            )
        return MembershipChange(kind, at_s, int(who), group)
    if kind is ChangeKind.JOIN or group is not None:
        raise ConfigError(
            f"{text!r}: the leader can only leave or be killed, as leader@8m", key=key
        )
    return MembershipChange(kind, at_s, 1, is_leader=True)


def check(scenario: Scenario) -> None:
    """Refuse changes that can't happen.

    Raises:
        ConfigError: a change after the end, of workers that are not there, or to more than
            :data:`MAX_WORKERS`.
    """
    live: Counter[str] = Counter()
    spread(live, scenario.workers, scenario.groups)
    for change in sorted(scenario.changes, key=lambda change: change.at_s):
        key = f"--{change.kind}"
        if change.at_s >= scenario.duration_s:
            raise ConfigError(
                f"at {change.at_s:g} s, but the simulation ends at {scenario.duration_s:g} s; "
                "see --duration",
                key=key,
            )
        if change.kind is ChangeKind.JOIN:
            if live.total() + change.count > MAX_WORKERS:
                raise ConfigError(
                    f"{live.total() + change.count} workers at {change.at_s:g} s; "
                    f"at most {MAX_WORKERS} are simulated",
                    key=key,
                )
            spread(live, change.count, _groups_of(change, live))
            continue
        there = live.total() if change.group is None else live[change.group]
        if change.count > there:
            of_group = "" if change.group is None else f" of {change.group}"
            raise ConfigError(
                f"{change.count} at {change.at_s:g} s, but then only {there} workers{of_group} run",
                key=key,
            )
        _remove(live, change)


def spread(live: Counter[str], count: int, groups: tuple[str, ...]) -> list[str]:
    """Groups of workers that join: each one goes where the fewest are.

    Args:
        live: workers by group; what joins is added.
        groups: where they may go.

    Returns:
        One group a worker.
    """
    chosen = []
    for _ in range(count):
        group = min(groups, key=lambda name: live[name])
        live[group] += 1
        chosen.append(group)
    return chosen


def _groups_of(change: MembershipChange, live: Counter[str]) -> tuple[str, ...]:
    return tuple(live) if change.group is None else (change.group,)


def _remove(live: Counter[str], change: MembershipChange) -> None:
    """Take workers out of the count; of a change without a group, from the largest ones."""
    for _ in range(change.count):
        group = change.group or max(live, key=lambda name: live[name])
        live[group] -= 1


def shares(load: Load, shards: int, rng: random.Random) -> list[float]:
    """The share of all records that each shard gets.

    Args:
        load: the kind of spread. Zipf's law has exponent 1, with the ranks shuffled over the shards.

    Returns:
        As many numbers > 0; their sum is 1.
    """
    weights = _weights(load, shards, rng)
    total = sum(weights)
    return [weight / total for weight in weights]


def _weights(load: Load, shards: int, rng: random.Random) -> list[float]:
    match load:
        case Load.EVEN:
            return [1.0] * shards
        case Load.ZIPF:
            return rng.sample([1 / rank for rank in range(1, shards + 1)], shards)
        case Load.RANDOM:
            return [rng.uniform(0.5, 1.5) for _ in range(shards)]
        case Load.HOT:
            hot = max(1, shards // 10)
            cold = max(1, shards - hot)
            weights = [HOT_SHARE / hot] * hot + [(1 - HOT_SHARE) / cold] * (shards - hot)
            return rng.sample(weights, shards)
        case _:  # pragma: no cover
            assert_never(load)
