"""What every service may need of the process it runs in, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    from mld.ports.clock import Clock, IdSource
    from mld.ports.metrics import Metrics
    from mld.ports.process import Offload


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
