"""What kcl-mld adds to the protocol: how it is announced, and its limits.

The daemon names its additions in the environment of every child. A child that does not find a name
there never uses that addition, so a program that knows them still runs under the Java daemon; and a
daemon that did not announce one takes its messages for junk, as Java does.

* ``tick``: an idle child gets an empty ``processRecords`` every so many seconds.
* ``intent``: the daemon stores which batch a child is about to write, and tells the next child.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.errors import RemoteProtocolError
from protocol.messages import BatchIntent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from protocol.messages import Scalar

#: Environment variable with the names, separated by commas.
CAPABILITIES_VARIABLE: Final = "KCL_MLD_CAPABILITIES"
#: Environment variable with the folder of the definitions of schemas; only where records have them.
SCHEMAS_VARIABLE: Final = "KCL_MLD_SCHEMAS"
#: All additions, by the name of their action.
CAPABILITIES: Final = frozenset({"intent", "tick"})
#: Shortest and longest tick, in seconds.
TICK_RANGE_S: Final = (0.1, 3600.0)
#: Longest text of an intent, in characters.
MAX_INTENT_TEXT: Final = 256
#: Keys of ``Initialize.extras`` for the stored intent, in the order of the fields of BatchIntent.
INTENT_KEYS: Final = ("intentNumber", "intentAfter", "intentTo", "intentAppId")


def capabilities(environ: Mapping[str, str]) -> frozenset[str]:
    """What the daemon has announced; unknown names are left out.

    Args:
        environ: environment of the child, ``os.environ`` in itself.
    """
    text = environ.get(CAPABILITIES_VARIABLE, "")
    return CAPABILITIES & {name.strip() for name in text.split(",")}


def intent_extras(intent: BatchIntent) -> dict[str, Scalar]:
    """The keys of ``initialize`` that tell a child of a stored intent."""
    return dict(
        zip(INTENT_KEYS, (intent.number, intent.after, intent.to, intent.app_id), strict=True)
    )


def intent_in(extras: Mapping[str, Scalar]) -> BatchIntent | None:
    """The stored intent that ``initialize`` told of; None when there is none.

    Raises:
        RemoteProtocolError: half an intent, or one of the wrong types. Going on without it could
            skip a batch or write one twice: end the process.
    """
    number, after, to, app_id = (extras.get(key) for key in INTENT_KEYS)
    if number is None and after is None and to is None and app_id is None:
        return None
    if (
        type(number) is int
        and isinstance(after, str)
        and isinstance(to, str)
        and isinstance(app_id, str)
    ):
        return BatchIntent(number, after, to, app_id)
    raise RemoteProtocolError(f"initialize tells of an intent that cannot be read: {number!r:.40}")


def intent_fault(intent: BatchIntent) -> str | None:
    """Why an intent can never be stored; None when it can."""
    if intent.number < 1:
        return f"number {intent.number} is less than 1"
    for name, text in (("after", intent.after), ("to", intent.to), ("appId", intent.app_id)):
        if len(text) > MAX_INTENT_TEXT:
            return f"{name} has {len(text)} characters, more than {MAX_INTENT_TEXT}"
    return None


def is_tick(seconds: float | None) -> bool:
    """True for a period that the daemon can keep."""
    shortest_s, longest_s = TICK_RANGE_S
    return seconds is not None and shortest_s <= seconds <= longest_s
