"""The world as one worker sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from mld.aws.ports import CloudWatch, DynamoDb, Glue, Kinesis
    from mld.children.ports import ChildLauncher, LetterStore
    from mld.config.properties import Entry
    from mld.fleet.worker_metrics import FindLoad
    from mld.kernel.ports import Clock, IdSource, Offload
    from mld.retrieval.ports import DecoderFactory, DefinitionFiles
    from mld.signals.ports import MetricSender


def _keep_memory() -> None:
    """Where no memory can be given back."""


def _undated() -> float | None:
    """Where no answer has a date."""
    return None


def _unmeasured(_pid: int) -> int | None:
    """Where no process can be measured."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPorts:
    """What a schema registry needs of the world.

    Attributes:
        decoders: None = payloads are passed on as they are.
    """

    glue: Glue
    files: DefinitionFiles
    decoders: DecoderFactory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The world as one worker sees it.

    Attributes:
        cloudwatch: None with ``metricsLevel=NONE``: then no client exists at all.
        schemas: None without ``glueSchemaRegistry.enabled``: then no client exists at all.
        letters: None without ``childFailurePolicy = deadletter``.
        release_memory: gives free memory back to the system, if there is a way.
        read_entries: the properties as the file has them now, with what is set outside it; None =
            not known.
        service_time: epoch seconds by the dates of Kinesis' answers; None where they have none.
        dropped_messages: log messages since the start that nobody took.
        find_load: finds what measures how busy this place is; None = nothing does.
        resident_bytes: memory of a process by its id; None where it is not known.
        metric_sender: None without ``otlpMetrics``.
        patient_dynamodb: makes another ``dynamodb`` that waits longer for an answer than a renewal
            may; None = there is none.
    """

    dynamodb: DynamoDb
    kinesis: Kinesis
    cloudwatch: CloudWatch | None
    children: ChildLauncher
    clock: Clock
    ids: IdSource
    rng: random.Random
    offload: Offload
    pid: int
    schemas: SchemaPorts | None = None
    letters: LetterStore | None = None
    release_memory: Callable[[], object] = _keep_memory
    read_entries: Callable[[], tuple[Entry, ...]] | None = None
    service_time: Callable[[], float | None] = _undated
    dropped_messages: Callable[[], int] = int
    find_load: FindLoad | None = None
    resident_bytes: Callable[[int], int | None] = _unmeasured
    metric_sender: MetricSender | None = None
    patient_dynamodb: Callable[[], DynamoDb] | None = None
