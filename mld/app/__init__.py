"""The composition root: what is needed of the world, and a worker that is wired to it.

:func:`build` turns a configuration and ports into a worker; the simulation runs the same function.
:func:`real_ports` makes the ports of the real world.
"""

from mld.app.ports import Ports, SchemaPorts
from mld.app.real_ports import RealWorld, real_ports
from mld.app.wiring import build
from mld.app.worker import Worker

__all__ = ["Ports", "RealWorld", "SchemaPorts", "Worker", "build", "real_ports"]
