"""What shard consumers are made of, what they show, and how their children can disappoint them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from mld.errors import ChildFailed
from mld.services.consuming.line_writer import LineWriter

if TYPE_CHECKING:
    from mld.model.config import Config
    from mld.model.stream import Stream
    from mld.ports.children import ChildLauncher
    from mld.services.leases.lease_renewer import LeaseRenewer
    from mld.services.retrieval.records_publisher import PublisherFactory
    from mld.services.runtime import Runtime
    from mld.services.shards.lease_cleanup import LeaseCleanup
    from mld.services.shards.shard_end import ShardEnd


class EndNotCheckpointed(ChildFailed):
    """A child answered shardEnded without a checkpoint: the shard cannot be finished like that.

    Java keeps such a shard for ever; here its child is started again from the last checkpoint.
    """


@dataclass(slots=True, kw_only=True)
class ConsumerParts:
    """What all consumers of a process share; make it once.

    Attributes:
        stream: named to the children.
        publishers: makes what gets a shard's records.
        pid: process id of the daemon, for children that outlive it if they don't look.
        lines: made here, because large conversions of all shards wait for each other in it.
        latest_starts: by lease key, the row's count of owner switches and when this process began
            to read at LATEST (epoch seconds). A child that is started again, or a lapsed lease that
            is regained, before anything was checkpointed goes on there; a new LATEST would skip
            what came in between.
    """

    config: Config
    runtime: Runtime
    stream: Stream
    publishers: PublisherFactory
    renewer: LeaseRenewer
    shard_end: ShardEnd
    cleanup: LeaseCleanup
    launcher: ChildLauncher
    pid: int
    lines: LineWriter = field(init=False)
    latest_starts: dict[str, tuple[int, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lines = LineWriter(
            self.runtime.offload, even_if_empty=self.config.retrieval.call_even_if_empty
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerStatus:
    """One shard for ``/leases``.

    Attributes:
        state: name of a :class:`~mld.decide.lifecycle.ConsumerState`.
        reason: why it stops, None while it does not.
        millis_behind_latest: of the last batch, None before the first.
        last_batch_age_s: since the last answer of Kinesis that was taken up, None before the first.
        child_pid: None while there is no child.
        checkpoint: last stored position, as text.
        blocked_by: shard id of the parent that is waited for.
        restarts: of the child in this hold of the lease.
        last_error: the last failure, one sentence.
    """

    lease_key: str
    shard_id: str
    state: str
    reason: str | None
    millis_behind_latest: int | None
    last_batch_age_s: float | None
    child_pid: int | None
    checkpoint: str
    blocked_by: str | None
    restarts: int
    last_error: str | None

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON."""
        return asdict(self)
