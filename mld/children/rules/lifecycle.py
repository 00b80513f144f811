"""The life of a shard consumer: states, reasons to stop, and transitions.

The names are Java's. Two rules differ, and both fix a hang of Java:

* A reason to stop always wins over the failure of the current task (in Java a failed task hides
  it: a shard that waits for its parent cannot be stopped, BUG-1 and BUG-2 of the 3.5.1 sources).
* After ``shutdownRequested`` the consumer shuts down by itself; Java idles until the lease is
  dropped and found missing.

The table below is the only definition of the order; the diagram in ``docs/architecture.md`` is
generated from it.

This module also decides whether and when a failed child is started again.

Source: ConsumerStates.java, ShardConsumer.java:361-391, ShutdownReason.java:38-78 (KCL 3.5.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Final

from kcl_mld.config.child_command import spark_command
from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.kernel.rules.backoff import backoff_s

if TYPE_CHECKING:
    import random

    from kcl_mld.config.config import ChildConfig
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

#: Longest pause between two starts of one shard's child.
CAP_S = 60.0
#: A child that answers shardEnded without a checkpoint is started again this often, whatever the
#: policy: Java repeats this forever and never reaches the policy.
SHARD_END_ATTEMPTS = 3
#: Exit codes of ``kcl-mld-spark`` that a restart would only repeat: correct the configuration, or
#: install what is missing.
_FINAL_CODES = (2, 3)


class ConsumerState(Enum):
    """The state of a consumer; shown as ``state`` in ``/leases``."""

    WAITING_ON_PARENT_SHARDS = "WAITING_ON_PARENT_SHARDS"
    INITIALIZING = "INITIALIZING"
    PROCESSING = "PROCESSING"
    SHUTDOWN_REQUESTED = "SHUTDOWN_REQUESTED"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    SHUTDOWN_COMPLETE = "SHUTDOWN_COMPLETE"


class ShutdownReason(IntEnum):
    """Why a consumer stops; the number is its rank, and a higher one replaces a lower one.

    LEASE_LOST beats SHARD_END because the end can no longer be checkpointed.
    """

    REQUESTED = 1
    SHARD_END = 2
    LEASE_LOST = 3


class TaskOutcome(Enum):
    """The result of a state's task."""

    DONE = "done"
    #: Try again: a parent is still read, no data yet, or a child that will be started again.
    AGAIN = "again"
    #: The child is gone and is started again from the last checkpoint.
    RESTART = "restart"


_S = ConsumerState
_ENDING: Final = {
    ShutdownReason.REQUESTED: _S.SHUTDOWN_REQUESTED,
    ShutdownReason.SHARD_END: _S.SHUTTING_DOWN,
    ShutdownReason.LEASE_LOST: _S.SHUTTING_DOWN,
}
_SHUT: Final = dict.fromkeys(ShutdownReason, _S.SHUTTING_DOWN)

#: State -> next state after its task while there is no reason to stop.
ONWARD: Final[dict[ConsumerState, dict[TaskOutcome, ConsumerState]]] = {
    _S.WAITING_ON_PARENT_SHARDS: {
        TaskOutcome.DONE: _S.INITIALIZING,
        TaskOutcome.AGAIN: _S.WAITING_ON_PARENT_SHARDS,
    },
    _S.INITIALIZING: {TaskOutcome.DONE: _S.PROCESSING, TaskOutcome.RESTART: _S.INITIALIZING},
    _S.PROCESSING: {
        TaskOutcome.DONE: _S.PROCESSING,
        TaskOutcome.AGAIN: _S.PROCESSING,
        TaskOutcome.RESTART: _S.INITIALIZING,
    },
}

#: State -> reason -> next state, whatever the outcome of the task was.
STOPPING: Final[dict[ConsumerState, dict[ShutdownReason, ConsumerState]]] = {
    # Nothing was initialized: there is no child to notify.
    _S.WAITING_ON_PARENT_SHARDS: _SHUT,
    _S.INITIALIZING: _ENDING,
    _S.PROCESSING: _ENDING,
    _S.SHUTDOWN_REQUESTED: _SHUT,
}


def next_state(
    state: ConsumerState, outcome: TaskOutcome, reason: ShutdownReason | None
) -> ConsumerState:
    """The state after a task.

    Args:
        reason: the strongest reason to stop so far, None = go on.

    Returns:
        The next state; SHUTTING_DOWN repeats itself until its task is done, except that a child
        that must be started again leads back to INITIALIZING, unless the lease is lost.

    Raises:
        ValueError: a combination that no task produces.
    """
    if state is _S.SHUTTING_DOWN:
        match outcome:
            case TaskOutcome.DONE:
                return _S.SHUTDOWN_COMPLETE
            case TaskOutcome.RESTART if reason is ShutdownReason.SHARD_END:
                return _S.INITIALIZING
            case _:
                return _S.SHUTTING_DOWN
    following = STOPPING.get(state, {}).get(reason) if reason is not None else None
    if following is None:
        following = ONWARD.get(state, {}).get(outcome)
    if following is None:
        raise ValueError(f"nothing follows {outcome} in {state} with {reason!r}")
    return following


def stronger(current: ShutdownReason | None, new: ShutdownReason) -> ShutdownReason:
    """The reason that remains when a new one is added: only a strictly higher rank replaces."""
    return new if current is None else max(current, new)


def mermaid() -> str:
    """The tables as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", f"    [*] --> {_S.WAITING_ON_PARENT_SHARDS.value}"]
    for state in ConsumerState:
        arrows: dict[ConsumerState, list[str]] = {}
        for outcome, target in ONWARD.get(state, {}).items():
            arrows.setdefault(target, []).append(outcome.value)
        for reason, target in STOPPING.get(state, {}).items():
            arrows.setdefault(target, []).append(reason.name)
        lines += [
            f"    {state.value} --> {target.value}: {', '.join(labels)}"
            for target, labels in arrows.items()
        ]
    lines += [
        f"    {_S.SHUTTING_DOWN.value} --> {_S.INITIALIZING.value}: restart at SHARD_END",
        f"    {_S.SHUTTING_DOWN.value} --> {_S.SHUTDOWN_COMPLETE.value}: done",
        f"    {_S.SHUTDOWN_COMPLETE.value} --> [*]",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class RestartCount:
    """The failures of one shard's children so far.

    Attributes:
        failures: in a row without a successful checkpoint in between.
        forgotten_ends: answers to shardEnded without a checkpoint; ordinary checkpoints do not
            reset them, because every further child stores some before it omits the last again.
        total: restarts in the life of this consumer, for display.
    """

    failures: int = 0
    forgotten_ends: int = 0
    total: int = 0

    def after_progress(self) -> RestartCount:
        """After a successful checkpoint."""
        return RestartCount(0, self.forgotten_ends, self.total) if self.failures else self

    def after_failure(self, *, forgot_end: bool) -> RestartCount:
        """After a child failed or answered shardEnded without a checkpoint."""
        return RestartCount(
            self.failures + 1, self.forgotten_ends + int(forgot_end), self.total + 1
        )


def restart_pause_s(
    config: ChildConfig,
    count: RestartCount,
    rng: random.Random,
    *,
    forgot_end: bool,
    exit_code: int | None = None,
) -> float | None:
    """Seconds until the next child of a shard, or None: the failure ends the daemon.

    Args:
        count: with the current failure already counted.
        forgot_end: whether that failure is an answer to shardEnded without a checkpoint.
        exit_code: of the child; None if unknown.
    """
    if exit_code in _FINAL_CODES and spark_command(config.argv) is not None:
        return None
    if forgot_end:
        if count.forgotten_ends > SHARD_END_ATTEMPTS:
            return None
    elif (
        config.failure_policy is ChildFailurePolicy.EXIT or count.failures > config.restart_attempts
    ):
        return None
    first_s = config.restart_backoff_s
    return backoff_s(count.failures - 1, rng, first_s=first_s, cap_s=max(CAP_S, first_s))


def start_order(position: ExtendedSequenceNumber) -> tuple[bool, tuple[int, int, int]]:
    """Sort key for children that wait for their start.

    The shard that is furthest behind comes first.

    How far a shard is behind is unknown before it is read. Sequence numbers grow with time, on all
    shards alike, and a shard that begins at LATEST has no backlog.

    Args:
        position: where the child is to begin.
    """
    return position.sentinel is Sentinel.LATEST, position.key
