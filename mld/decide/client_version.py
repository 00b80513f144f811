"""How a worker of a fleet gets its leases, by the generation of the fleet."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """How leases come to the workers of a fleet."""

    #: Each worker takes its share (2.x).
    TAKES = "takes"
    #: A leader assigns them (3.x).
    ASSIGNED = "assigned"
