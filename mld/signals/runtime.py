"""What the services of a worker share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from kcl_mld.kernel.ports import Clock, IdSource, Offload
    from kcl_mld.signals.ports import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """Time, chance, ids, metrics and a place for long computations; one per worker.

    Attributes:
        offload: for pure functions that take too long for the loop.
    """

    clock: Clock
    rng: random.Random
    ids: IdSource
    metrics: Metrics
    offload: Offload
