"""What shard consumers are made of, and how their children can disappoint them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mld.errors import ChildFailed
from mld.services.child.child_starts import ChildStarts
from mld.services.consuming.line_writer import LineWriter

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.model.config.config import Config
    from mld.ports.children import ChildLauncher
    from mld.services.leases.lease_renewer import LeaseRenewer
    from mld.services.runtime import Runtime
    from mld.services.schemas.schema_registry import SchemaRegistry
    from mld.services.shards.lease_cleanup import LeaseCleanup
    from mld.services.shards.shard_end import ShardEnd
    from mld.services.streams.stream_context import StreamRegistry


class EndNotCheckpointed(ChildFailed):
    """A child answered shardEnded without a checkpoint: the shard cannot be finished like that.

    Java keeps such a shard for ever; here its child is started again from the last checkpoint.
    """


@dataclass(slots=True)
class Tally:
    """Counts since the process began.

    Attributes:
        records: handed to children, a record that was handed twice counts twice.
        restarts: of children.
    """

    records: int = 0
    restarts: int = 0


def _undated() -> float | None:
    """No answer has a date."""
    return None


@dataclass(slots=True, kw_only=True)
class ConsumerParts:
    """What all consumers of a process share; make it once.

    Attributes:
        streams: finds the stream of a lease.
        pid: process id of the daemon, for children that outlive it if they don't look.
        schemas: the schema registry; None = frames are left alone.
        starts: made here, because all children share its places.
        lines: made here, because large conversions of all shards wait for each other in it.
        latest_starts: by lease key, the row's count of owner switches and when this process began
            to read at LATEST (epoch seconds). A child that is started again, or a lapsed lease that
            is regained, before anything was checkpointed goes on there; a new LATEST would skip
            what came in between.
        tally: what all of them have done so far.
        service_time: epoch seconds by the answers of Kinesis; None where they have no date.
    """

    config: Config
    runtime: Runtime
    streams: StreamRegistry
    renewer: LeaseRenewer
    shard_end: ShardEnd
    cleanup: LeaseCleanup
    launcher: ChildLauncher
    pid: int
    schemas: SchemaRegistry | None = None
    starts: ChildStarts = field(init=False)
    lines: LineWriter = field(init=False)
    latest_starts: dict[str, tuple[int, float]] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    service_time: Callable[[], float | None] = _undated

    def __post_init__(self) -> None:
        self.starts = ChildStarts(self.runtime.clock)
        self.lines = LineWriter(
            self.runtime.offload,
            even_if_empty=self.config.retrieval.call_even_if_empty,
            schemas=self.schemas,
        )
