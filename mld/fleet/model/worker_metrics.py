"""How loaded a worker is: the item that each 3.x worker writes and the leader reads.

Source: WorkerMetricStats (3.5.1).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kcl_mld.config.reserved_keys import FAILED_LIFE
from kcl_mld.errors import MalformedData
from kcl_mld.fleet.model.worker_life import INSTANCE, instance_of
from kcl_mld.leases.model.table_item import (
    ENTITY_TYPE,
    Entity,
    decimal,
    entity_of,
    integer,
    integer_of,
    required,
    text_of,
    value_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kcl_mld.fleet.model.worker_life import Instance
    from kcl_mld.leases.model.table_item import Item

#: ``sup`` of a worker that keeps its items in the place set by the table migration to 3.5.
SINGLE_TABLE_MIGRATION = 1
#: Attribute with texts by name.
PROPERTIES = "properties"
#: Its entries of ours.
GROUP = "kclMldWorkerGroup"
PLACE = "kclMldMeasuredPlace"
MOST = "kclMldMostRenewable"
HONORS_PAUSE = "kclMldHonorsPause"
CLOCK_AHEAD = "kclMldClockAheadSeconds"
WORST_LAG = "kclMldWorstLag"
_CLOCK_AHEAD = re.compile(r"(-?[0-9]{1,12}) ([0-9]{1,12})")
_WORST_LAG = re.compile(r"([0-9]{1,12}) ([0-9]{1,12}) (\S.*)", re.DOTALL)
#: A sample that could not be taken.
FAILED_SAMPLE = -1.0


@dataclass(frozen=True, slots=True)
class WorstLag:
    """The lease of a worker that is furthest behind; see ``ConsumerStatus.lag_s``.

    Attributes:
        seconds: >= 0.
    """

    lease_key: str
    seconds: int


@dataclass(frozen=True, slots=True)
class WorkerMetrics:
    """One worker's metrics.

    Attributes:
        worker_id: as ``leaseOwner`` has it.
        updated_at_s: ``lut``, epoch seconds.
        samples: ``sts``: short name of a metric (``C`` is the CPU) -> averages in percent, oldest
            first; -1 = the sample failed. Empty for a worker that measures nothing.
        limits: ``opr``: short name -> operating range in percent, of which the first counts.
        support: ``sup``, 1 = :data:`SINGLE_TABLE_MIGRATION`; None in versions before 3.5.
        support_at_s: ``slu``, epoch seconds at which ``support`` was true.
        group: the group that a worker of kcl-mld reports, an entry of ``properties``,
            which Java has and leaves empty; None = not reported.
        place: likewise, the machine or container that it measured. Workers that share one have the
            same CPU, whatever their leases are.
        most: likewise, how many leases it can renew in time, by its own measure.
        honors_pause: likewise, it reads no lease that is paused. The entry is the ``lut`` that it
            was written with: a Java worker that gets the id later keeps ``properties``.
        clock_ahead_s: likewise, seconds by which its clock is ahead of AWS, where it is wrong. Its
            text has the ``lut``, too.
        instance: likewise, the process that wrote the item; None where another program did.
        worst_lag: likewise, of the leases that it reads; None = not reported, or it reads none.
    """

    worker_id: str
    updated_at_s: int
    samples: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    limits: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    support: int | None = None
    support_at_s: int | None = None
    group: str | None = None
    place: str | None = None
    most: int | None = None
    honors_pause: bool = False
    clock_ahead_s: int | None = None
    instance: Instance | None = None
    worst_lag: WorstLag | None = None


def honoring(metrics: Iterable[WorkerMetrics]) -> frozenset[str]:
    """Ids of the workers that report that they honor a pause."""
    return frozenset(one.worker_id for one in metrics if one.honors_pause)


def metrics_from_item(item: Item, key_name: str) -> WorkerMetrics:
    """The metrics of an item.

    Args:
        item: of the table of metrics, or an item ``WORKER_METRIC_STATS`` of the lease table.
        key_name: ``wid`` or ``leaseKey``.

    Raises:
        MalformedData: the key or ``lut`` is absent, or something can't be read: ignore the worker.
    """
    properties = value_of(item, PROPERTIES, "M") or {}
    most = text_of(properties, MOST)
    updated_at_s = required(integer_of(item, "lut"), "lut")
    return WorkerMetrics(
        worker_id=required(text_of(item, key_name), key_name),
        updated_at_s=updated_at_s,
        samples={
            name: tuple(_decimals(numbers, f"sts.{name}"))
            for name, numbers in (value_of(item, "sts", "M") or {}).items()
        },
        limits={
            name: tuple(_integers(numbers, f"opr.{name}"))
            for name, numbers in (value_of(item, "opr", "M") or {}).items()
        },
        support=integer_of(item, "sup"),
        support_at_s=integer_of(item, "slu"),
        group=text_of(properties, GROUP),
        place=text_of(properties, PLACE),
        most=int(most) if most is not None and most.isdecimal() else None,
        honors_pause=text_of(properties, HONORS_PAUSE) == str(updated_at_s),
        clock_ahead_s=_clock_ahead_s(text_of(properties, CLOCK_AHEAD), updated_at_s),
        instance=instance_of(text_of(properties, INSTANCE), updated_at_s),
        worst_lag=_worst_lag(text_of(properties, WORST_LAG), updated_at_s),
    )


def metrics_attributes(metrics: WorkerMetrics) -> dict[str, dict[str, Any]]:
    """All attributes but the key; an UpdateItem sets them, so that others survive."""
    attributes: dict[str, dict[str, Any]] = {
        ENTITY_TYPE: {"S": Entity.WORKER_METRIC_STATS.value},
        "lut": integer(metrics.updated_at_s),
        "sts": {
            "M": {
                name: {"L": [decimal(sample) for sample in samples]}
                for name, samples in metrics.samples.items()
            }
        },
        "opr": {
            "M": {
                name: {"L": [integer(limit) for limit in limits]}
                for name, limits in metrics.limits.items()
            }
        },
    }
    if metrics.support is not None:
        attributes["sup"] = integer(metrics.support)
    if metrics.support_at_s is not None:
        attributes["slu"] = integer(metrics.support_at_s)
    most = None if metrics.most is None else str(metrics.most)
    ahead_s = metrics.clock_ahead_s
    ahead = None if ahead_s is None else f"{ahead_s} {metrics.updated_at_s}"
    honors = str(metrics.updated_at_s) if metrics.honors_pause else None
    instance = None if metrics.instance is None else metrics.instance.text(metrics.updated_at_s)
    worst = metrics.worst_lag
    lag = None if worst is None else f"{metrics.updated_at_s} {worst.seconds} {worst.lease_key}"
    texts = (
        (GROUP, metrics.group),
        (PLACE, metrics.place),
        (MOST, most),
        (HONORS_PAUSE, honors),
        (CLOCK_AHEAD, ahead),
        (INSTANCE, instance),
        (WORST_LAG, lag),
    )
    properties = {name: {"S": text} for name, text in texts if text}
    if properties:
        attributes[PROPERTIES] = {"M": properties}
    return attributes


def metrics_to_item(metrics: WorkerMetrics, key_name: str) -> dict[str, dict[str, Any]]:
    """The complete item."""
    return {key_name: {"S": metrics.worker_id}, **metrics_attributes(metrics)}


def metrics_in(
    items: Iterable[Item], key_name: str
) -> tuple[tuple[WorkerMetrics, ...], tuple[tuple[str, str], ...]]:
    """The metrics among the items of a table.

    Args:
        items: of the table of metrics, or those of a scan of the lease table that are no leases.

    Returns:
        Those that can be read, in order of their workers' ids, and (worker id, why) of the others.
    """
    found: list[WorkerMetrics] = []
    broken: list[tuple[str, str]] = []
    for item in items:
        key = str(item.get(key_name, {}).get("S", ""))
        if entity_of(item, key_name) is not Entity.WORKER_METRIC_STATS:
            continue
        if key.startswith(FAILED_LIFE):
            continue  # of no worker that lives
        try:
            found.append(metrics_from_item(item, key_name))
        except MalformedData as error:
            broken.append((key, str(error)))
    return tuple(sorted(found, key=lambda one: one.worker_id)), tuple(sorted(broken))


def _clock_ahead_s(text: str | None, updated_at_s: int | None) -> int | None:
    """A worker's report of its clock; None if it was not written with this ``lut``."""
    parts = None if text is None else _CLOCK_AHEAD.fullmatch(text)
    return int(parts[1]) if parts is not None and int(parts[2]) == updated_at_s else None


def _worst_lag(text: str | None, updated_at_s: int) -> WorstLag | None:
    """A worker's report of its shards; None if it was not written with this ``lut``."""
    parts = None if text is None else _WORST_LAG.fullmatch(text)
    return WorstLag(parts[3], int(parts[2])) if parts and int(parts[1]) == updated_at_s else None


def _decimals(attribute: Mapping[str, Any], name: str) -> list[float]:
    numbers = value_of({name: attribute}, name, "L") or ()
    try:
        return [float(number["N"]) for number in numbers]
    except (KeyError, ValueError):
        raise MalformedData(f"{name} has an entry that is not a number") from None


def _integers(attribute: Mapping[str, Any], name: str) -> list[int]:
    numbers = value_of({name: attribute}, name, "L") or ()
    return [required(integer_of({name: number}, name), name) for number in numbers]
