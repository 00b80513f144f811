"""JSON Schemas (draft 2020-12) of the messages, one file per message.

They describe what a well-behaved peer writes. What the daemon accepts beyond that is decided by
``kcl_mld_protocol.jackson``. Files: ``<name>.json`` for each of :data:`NAMES`.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

#: Schemas of lines that the daemon writes, then of lines that a child writes.
DAEMON_NAMES = (
    "initialize",
    "processRecords",
    "leaseLost",
    "shardEnded",
    "shutdownRequested",
    "checkpointResult",
)
CHILD_NAMES = ("status", "checkpointRequest", "tick")
NAMES = DAEMON_NAMES + CHILD_NAMES


def load(name: str) -> dict[str, Any]:
    """The schema of that name, freshly parsed.

    Args:
        name: one of :data:`NAMES`.

    Raises:
        KeyError: there is no such schema.
    """
    if name not in NAMES:
        raise KeyError(name)
    text = files(__name__).joinpath(f"{name}.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
