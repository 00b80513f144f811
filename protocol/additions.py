"""What kcl-mld adds to the protocol: how it is announced, and its limits.

The daemon names its additions in the environment of every child. A child that does not find a name
there never uses that addition, so a program that knows them still runs under the Java daemon; and a
daemon that did not announce one takes its messages for junk, as Java does.

* ``tick``: an idle child gets an empty ``processRecords`` at regular intervals.
* ``log``: a record for the daemon's log; like any other output, it moves nothing.
* ``failure``: a status may say that the action has failed, and at which record. Announced only where
  the daemon sets such records aside.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Environment variable with the names, separated by commas.
CAPABILITIES_VARIABLE: Final = "KCL_MLD_CAPABILITIES"
#: Environment variable with the folder of the definitions of schemas; only where records have them.
SCHEMAS_VARIABLE: Final = "KCL_MLD_SCHEMAS"
#: A status of an action that has failed.
FAILURE: Final = "failure"
#: All additions; but :data:`FAILURE` they are named like their actions.
CAPABILITIES: Final = frozenset({"tick", "log", FAILURE})
#: Shortest and longest tick, in seconds.
TICK_RANGE_S: Final = (0.1, 3600.0)


def capabilities(environ: Mapping[str, str]) -> frozenset[str]:
    """What the daemon has announced; unknown names are left out.

    Args:
        environ: environment of the child, ``os.environ`` in itself.
    """
    text = environ.get(CAPABILITIES_VARIABLE, "")
    return CAPABILITIES & {name.strip() for name in text.split(",")}


def is_tick(seconds: float | None) -> bool:
    """True for a period that the daemon can keep."""
    shortest_s, longest_s = TICK_RANGE_S
    return seconds is not None and shortest_s <= seconds <= longest_s
