"""Whether a failed child gets another chance, and when."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.decide.backoff import backoff_s
from mld.model.config.config import ChildFailurePolicy
from mld.model.spark.command import spark_command

if TYPE_CHECKING:
    import random

    from mld.model.config.config import ChildConfig

#: Longest pause between two starts of one shard's child.
CAP_S = 60.0
#: A child that answers shardEnded without a checkpoint is started again so often, whatever the
#: policy says: Java asks it again for ever and never reaches it.
SHARD_END_ATTEMPTS = 3
#: Exit codes of ``kcl-mld-spark`` that another start would only repeat: correct it, or install it.
_FINAL_CODES = (2, 3)


@dataclass(frozen=True, slots=True)
class RestartCount:
    """What one shard's children have cost so far.

    Attributes:
        failures: in a row without a successful checkpoint in between.
        forgotten_ends: answers to shardEnded without a checkpoint; ordinary checkpoints do not
            reset them, because every further child stores some before it forgets again.
        total: restarts in the life of this consumer, for people.
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
        config: policy, first pause and number of attempts.
        count: with the failure at hand already counted.
        rng: where chance comes from.
        forgot_end: whether that failure is an answer to shardEnded without a checkpoint.
        exit_code: of the child; None if it is not known.
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
