"""One line about the work of a worker, for its log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.children.rules.lifecycle import ConsumerState
from kcl_mld.kernel.model.text import counted, lasted
from kcl_mld.observe.rules.readiness import ShardHealth, batch_age_s, health_of, readiness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.children.model.consumer_status import ConsumerStatus
    from kcl_mld.observe.rules.readiness import WorkerSnapshot

_WORDS = {
    ShardHealth.READ: "being read",
    ShardHealth.STARTING: "starting",
    ShardHealth.QUEUED: "waiting to start",
    ShardHealth.WAITING: "waiting for parents",
    ShardHealth.ENDING: "ending",
    ShardHealth.CHILD_SILENT: "whose child does not answer",
    ShardHealth.CHILD_FAILS: "with a failing child",
    ShardHealth.READING_FAILS: "that can't be read",
}
#: A shard without a finished batch for longer is named: its child may hang.
_LONG_S = 60.0


def summary(
    worker: WorkerSnapshot,
    *,
    records: int,
    restarts: int,
    interval_s: float,
    child_sizes: Sequence[int] = (),
) -> str:
    """The state of the work, e.g. ``2 shards held: 2 being read; 12 records/s; greatest lag 0.3 s ...``.

    Args:
        records: handed to children in the interval.
        restarts: of children in the interval.
        interval_s: since the last line, > 0.
        child_sizes: resident memory of each child whose memory is known, in bytes.
    """
    judged = readiness(worker)
    parts = [
        _shards(len(worker.shards), judged.shards),
        f"{_rate(records / interval_s)} records/s",
        *_lag(worker),
        *_unfinished(worker),
        f"{restarts} child restart{'s' * (restarts != 1)}",
        *_memory(child_sizes),
    ]
    if worker.left_free:
        parts.append(worker.left_free)
    if not judged.is_ready:
        reasons = dict.fromkeys(str(one.reason) for one in judged.reasons)
        parts.append(f"not ready: {', '.join(reasons)}")
    return "; ".join(parts)


def _shards(held: int, counts: tuple[tuple[ShardHealth, int], ...]) -> str:
    if not held:
        return "No shards held"
    states = ", ".join(f"{count} {_WORDS[health]}" for health, count in counts)
    return f"{held} shard{'s' * (held != 1)} held: {states}"


def _rate(per_s: float) -> str:
    return f"{per_s:.1f}" if 0 < per_s < 10 else f"{per_s:.0f}"


def _lag(worker: WorkerSnapshot) -> list[str]:
    lags = [(shard.lag_s, shard.shown_shard) for shard in worker.shards if shard.lag_s is not None]
    if not lags:
        return []
    lag_s, shard_id = max(lags)
    return [f"greatest lag {lasted(lag_s)} ({shard_id})"]


def _unfinished(worker: WorkerSnapshot) -> list[str]:
    ages = [
        (age_s, shard.shown_shard)
        for shard in worker.shards
        if _has_work(shard) and (age_s := batch_age_s(shard)) > _LONG_S
    ]
    if not ages:
        return []
    age_s, shard_id = max(ages)
    return [f"longest without a finished batch {lasted(age_s)} ({shard_id})"]


def _memory(sizes: Sequence[int]) -> list[str]:
    if not sizes:
        return []
    children = counted(len(sizes), "child", "children")
    return [f"{children} with {sum(sizes) / 2**20:.0f} MiB, the largest {max(sizes) / 2**20:.0f}"]


def _has_work(shard: ConsumerStatus) -> bool:
    is_over = shard.state == ConsumerState.SHUTDOWN_COMPLETE.value
    return not is_over and health_of(shard) is not ShardHealth.WAITING
