"""What a run of ``kcl-mld acceptance`` was asked to do, and the names that follow from it."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PREFIX = "kcl-mld-acceptance"
#: Names of all that a run creates begin with it.
PREFIX_FORM = re.compile(r"[a-z][a-z0-9-]{1,38}[a-z0-9]")
_RUN_ID_BYTES = 5
#: Stands for the endpoints of AWS, whichever they are.
AWS = "AWS"
#: In the directory of the run.
JOURNAL = "journal.jsonl"
#: Open shards that the stream has at first, and at most at a time.
SHARDS = 2
MOST_SHARDS = 4


class Stage(StrEnum):
    """A part of the proof."""

    POLLING = "polling"
    RESHARDING = "resharding"
    KILL = "kill"
    HAND_OFF = "hand-off"
    FAN_OUT = "fan-out"
    METRICS = "metrics"
    TABLE_STREAM = "table-stream"
    JAVA = "java"
    SPARK = "spark"
    ROLLOVERS = "rollovers"


def new_run_id() -> str:
    """Ten random hex digits: no other run, and nobody's resource, has this name."""
    return secrets.token_hex(_RUN_ID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The names of all that a run may create.

    Attributes:
        prefix: see :data:`PREFIX_FORM`.
        run_id: see :func:`new_run_id`.
    """

    prefix: str
    run_id: str

    @property
    def run(self) -> str:
        """Begins every name; that of the Glue database with ``_`` for ``-``."""
        return f"{self.prefix}-{self.run_id}"

    @property
    def stream(self) -> str:
        """The stream that all stages but the table stream read."""
        return f"{self.run}-records"

    @property
    def source_table(self) -> str:
        """The DynamoDB table with a change stream."""
        return f"{self.run}-changes"

    @property
    def polling_application(self) -> str:
        """Application and lease table."""
        return f"{self.run}-polling"

    @property
    def fan_out_application(self) -> str:
        """Application, lease table and consumer."""
        return f"{self.run}-fan-out"

    @property
    def table_application(self) -> str:
        """Application and lease table of the table stream's worker."""
        return f"{self.run}-table-stream"

    @property
    def java_application(self) -> str:
        """Application and lease table that a Java worker shares with one of ours."""
        return f"{self.run}-java"

    @property
    def java_tables(self) -> tuple[str, str, str]:
        """Its lease table, and the two that Java workers of KCL 3.x add."""
        name = self.java_application
        return name, f"{name}-WorkerMetricStats", f"{name}-CoordinatorState"

    @property
    def spark_delta_application(self) -> str:
        """Application and lease table of the PySpark children that write a Delta table."""
        return f"{self.run}-spark-delta"

    @property
    def spark_iceberg_application(self) -> str:
        """The same for an Iceberg table."""
        return f"{self.run}-spark-iceberg"

    @property
    def glue_database(self) -> str:
        """Of the Iceberg table; Athena takes no hyphens."""
        return self.run.replace("-", "_")

    @property
    def absent(self) -> str:
        """The name of what is never created: permissions are tried on it."""
        return f"{self.run}-absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """One run.

    Attributes:
        account: twelve digits; that of the caller.
        limit_s: the proof ends then at the latest; the clean-up comes after it.
        limit_usd: the same by the estimated costs.
        stages: those that were asked for.
        directory: journal, recording, logs and reports.
        bucket: the user's own, which exists; None = no PySpark children.
        java: path of the program ``java``; None = no Java worker.
        jars: folder of the jars of its MultiLangDaemon.
        endpoints: of each service; see :meth:`kcl_mld.acceptance.clients.Clients.endpoints`.
        interval_s: least time between two control-plane calls; 1 on AWS.
    """

    region: str
    account: str
    names: Names
    limit_s: float
    limit_usd: float
    stages: frozenset[Stage]
    directory: Path
    bucket: str | None = None
    java: str | None = None
    jars: str | None = None
    endpoints: Mapping[str, str] = field(default_factory=dict)
    interval_s: float = 1.0

    @property
    def prefix(self) -> str:
        """See :class:`Names`."""
        return self.names.prefix

    @property
    def run_id(self) -> str:
        """See :class:`Names`."""
        return self.names.run_id

    @property
    def run_name(self) -> str:
        """See :class:`Names`."""
        return self.names.run

    @property
    def is_local(self) -> bool:
        """Other servers stand in for AWS: nothing about it is proven."""
        return any(place != AWS for place in self.endpoints.values())

    @property
    def journal(self) -> Path:
        """The file that ``--clean-up`` takes."""
        return self.directory / JOURNAL
