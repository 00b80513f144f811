"""Counting what happens, in the words that operators of the KCL already alarm on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import IntEnum, StrEnum


class Level(IntEnum):
    """A datum passes when its level is at least the configured one (``metricsLevel``)."""

    DETAILED = 9000
    SUMMARY = 10000
    NONE = 2**31 - 1


class Unit(StrEnum):
    """CloudWatch units in use."""

    COUNT = "Count"
    BYTES = "Bytes"
    MILLISECONDS = "Milliseconds"
    NONE = "None"


@dataclass(frozen=True, slots=True)
class Datum:
    """One value of a statistic set, which (operation, dimensions, name) tell from others.

    Attributes:
        operation: dimension ``Operation``, e.g. ``ProcessTask``; "" = no such dimension.
        name: metric name, e.g. ``RecordsProcessed``.
        value: in ``unit``.
        level: SUMMARY or DETAILED.
        shard_id: adds the dimension ``ShardId``.
        stream_id: adds the dimension ``StreamId`` (multi-stream mode only).
        worker: adds the dimension ``WorkerIdentifier``.
    """

    operation: str
    name: str
    value: float
    unit: Unit = Unit.COUNT
    level: Level = Level.SUMMARY
    shard_id: str | None = None
    stream_id: str | None = None
    worker: bool = False


class Metrics(ABC):
    """A sink for single data; never blocks, never raises."""

    @abstractmethod
    def put(self, datum: Datum) -> None:
        """Add one value to its statistic set."""

    def add(
        self,
        operation: str,
        name: str,
        value: float,
        *,
        unit: Unit = Unit.COUNT,
        level: Level = Level.SUMMARY,
        shard_id: str | None = None,
        stream_id: str | None = None,
        worker: bool = False,
    ) -> None:
        """As :meth:`put`, with the parts of a :class:`Datum`."""
        self.put(Datum(operation, name, value, unit, level, shard_id, stream_id, worker))


class OperationMetrics:
    """What one operation counts, with the dimension ``WorkerIdentifier``."""

    def __init__(self, metrics: Metrics, operation: str) -> None:
        """Count for the dimension ``Operation`` = ``operation``."""
        self._metrics = metrics
        self._operation = operation

    def count(self, name: str, value: float, level: Level = Level.SUMMARY) -> None:
        """Add one value."""
        self._metrics.add(self._operation, name, value, level=level, worker=True)

    def time(self, name: str, seconds: float, level: Level = Level.SUMMARY) -> None:
        """Add one duration; it is reported in milliseconds."""
        self._metrics.add(
            self._operation,
            name,
            seconds * 1000,
            unit=Unit.MILLISECONDS,
            level=level,
            worker=True,
        )


class NoMetrics(Metrics):
    """Drops everything: ``metricsLevel=NONE``, and tests that do not look."""

    def put(self, datum: Datum) -> None:
        """Do nothing."""
