"""What people do to a 3.x fleet while it works: the part of a plan that :mod:`tests.sim.operations`
carries out.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

#: The ways through the generations: each step as :meth:`tests.sim.operations.Operations.change`
#: names it, from the generation at the start.
_WAYS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("CLIENT_VERSION_3X_WITH_ROLLBACK", ("rollback",)),
    ("CLIENT_VERSION_3X_WITH_ROLLBACK", ("rollback", "rollforward")),
    ("CLIENT_VERSION_3X_WITH_ROLLBACK", ("rollback", "rollforward", "flip")),
    ("CLIENT_VERSION_3X_WITH_ROLLBACK", ("rollback", "rollforward", "rollback")),
    ("CLIENT_VERSION_3X_WITH_ROLLBACK", ("settle",)),
    ("CLIENT_VERSION_UPGRADE_FROM_2X", ("flip", "settle")),
    ("CLIENT_VERSION_UPGRADE_FROM_2X", ("flip", "rollback")),
    ("CLIENT_VERSION_UPGRADE_FROM_2X", ("rollback", "rollforward", "flip", "settle")),
)
#: What the coordinator table says at the start; "" = nothing yet.
_STATES = ("", "TABLE_MIGRATION_STATUS_INIT", "TABLE_MIGRATION_STATUS_DEPLOYED")


@dataclass(frozen=True)
class Changes:
    """What is done, in this order.

    Attributes:
        starts_as: ``cv`` at the start.
        generations: changes of ``cv``.
        every_s: mean distance of two changes.
        is_legacy: the fleet has the three tables of 3.0 to 3.4.
        old_worker_s: for so long after the start there is a worker of 3.1, which knows nothing else.
        moves_from: ``tm`` at the start, if the three tables become one; None = they stay.
        bake_s: after so long the move is for good.
        returns_s: for so long a worker of 3.1 is there again, once the items are moved.
        kills: how often a leader dies with a write of that move, at most.
        losses: tables that are deleted and restored from a backup, ``coordinator`` or ``metrics``.
        lost_s: for how long each is missing.
    """

    starts_as: str = "CLIENT_VERSION_3X"
    generations: tuple[str, ...] = ()
    every_s: float = 60.0
    is_legacy: bool = False
    old_worker_s: float = 0.0
    moves_from: str | None = None
    bake_s: float = 45.0
    returns_s: float = 0.0
    kills: int = 0
    losses: tuple[str, ...] = ()
    lost_s: float = 40.0


def draw_changes(seed: int) -> Changes:
    """Those of a seed."""
    rng = random.Random(f"changes {seed}")
    what = rng.choice(["generations", "tables", "tables", "losses"])
    starts_as, generations = rng.choice(_WAYS) if what == "generations" else (Changes.starts_as, ())
    moves_from = rng.choice(_STATES) if what == "tables" else None
    # Drawn apart: the rest of a seed's changes stays what it was.
    again = random.Random(f"again {seed}")
    is_again = moves_from is not None and again.random() < 0.25
    returns_s = again.uniform(5, 60) if is_again else 0.0
    losses = rng.choice([("coordinator",), ("metrics",), ("coordinator", "metrics")])
    return Changes(
        starts_as=starts_as,
        generations=generations,
        every_s=rng.uniform(20, 120),
        is_legacy=what != "generations" or rng.random() < 0.4,
        old_worker_s=rng.uniform(20, 90) if moves_from == "" and rng.random() < 0.6 else 0.0,
        moves_from=moves_from,
        # Such a worker must not start when the move is for good.
        bake_s=90.0 if returns_s else rng.uniform(5, 90),
        returns_s=returns_s,
        kills=rng.choice([0, 2, 5]),
        losses=losses if what == "losses" else (),
        lost_s=rng.choice([rng.uniform(1, 10), rng.uniform(10, 150)]),
    )
