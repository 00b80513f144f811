"""The composition root: the ports of a worker, and the worker that is wired to them.

:func:`build` turns a configuration and ports into a worker; the simulation uses the same function.
:func:`real_ports` creates the real ports.
"""

from kcl_mld.app.ports import Ports, SchemaPorts
from kcl_mld.app.real_ports import RealWorld, real_ports
from kcl_mld.app.wiring import build
from kcl_mld.app.worker import Worker

__all__ = ["Ports", "RealWorld", "SchemaPorts", "Worker", "build", "real_ports"]
