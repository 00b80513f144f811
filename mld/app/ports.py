"""The outside world as one worker uses it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from kcl_mld.aws.ports import CloudWatch, DynamoDb, Glue, Kinesis
    from kcl_mld.children.ports import ChildLauncher, LetterStore
    from kcl_mld.config.properties import Entry
    from kcl_mld.fleet.worker_metrics import FindLoad
    from kcl_mld.kernel.ports import Clock, IdSource, Offload
    from kcl_mld.ops.rules.doctor import MachineLimits
    from kcl_mld.retrieval.ports import DecoderFactory, DefinitionFiles
    from kcl_mld.signals.ports import MetricSender


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaPorts:
    """What a schema registry needs from outside.

    Attributes:
        decoders: None = payloads are passed on as they are.
    """

    glue: Glue
    files: DefinitionFiles
    decoders: DecoderFactory | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The outside world as one worker uses it.

    Attributes:
        cloudwatch: None with ``metricsLevel=NONE``: then no client exists at all.
        schemas: None without ``glueSchemaRegistry.enabled``: then no client exists at all.
        letters: None without ``childFailurePolicy = deadletter``.
        release_memory: returns free memory to the system, where possible.
        read_entries: the current properties of the file, with overrides from outside it; None =
            unknown.
        service_time: epoch seconds by the dates of Kinesis' answers; None where they have none.
        dropped_messages: log messages dropped since the start.
        find_load: finds the source of CPU figures; None = there is none.
        resident_bytes: memory of a process by its id; None if unknown.
        limits: finds what this process may have; None = they are not checked.
        metric_sender: None without ``otlpMetrics``.
        patient_dynamodb: creates another ``dynamodb`` that waits longer for an answer than a
            renewal may; None = there is none.
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
    schemas: SchemaPorts | None
    letters: LetterStore | None
    release_memory: Callable[[], object]
    read_entries: Callable[[], tuple[Entry, ...]] | None
    service_time: Callable[[], float | None]
    dropped_messages: Callable[[], int]
    find_load: FindLoad | None
    resident_bytes: Callable[[int], int | None]
    limits: Callable[[], MachineLimits] | None
    metric_sender: MetricSender | None
    patient_dynamodb: Callable[[], DynamoDb] | None
