"""What delta-rs says of a table that it can't open or write, and what can be done about it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

_COLOR = re.compile(r"\x1b\[[0-9;]*m|↳")
_HINT = "_last_checkpoint"


def in_a_line(error: BaseException) -> str:
    """What delta-rs says, which may be a tree over several lines, in colors."""
    return " ".join(_COLOR.sub("", str(error)).split())


def damage_in(log: Path) -> str:
    """What a loss of power has damaged in a table's log, and how to mend it; "" if nothing.

    A log checkpoint repeats what the entries before it say, and the hint names the newest one. A
    file system may keep the names of both and lose what was in them.

    Args:
        log: directory of the log.
    """
    entries = sorted(log.glob("*.json"))
    if len(entries) == 1 and not entries[0].read_bytes().strip(b"\0"):
        return (
            f". Its only entry, {entries[0].name}, is empty: if power was lost when the table was made, "
            f"it has no rows; stop all workers, remove {log}, and start them"
        )
    broken = [path.name for path in sorted(log.glob("*.checkpoint*.parquet")) if not _reads(path)]
    if broken:
        names = ", ".join([*broken, _HINT])
        return (
            f". Not all of its log checkpoints can be read: if power was lost, stop all workers, "
            f"move {names} out of {log}, and start them; its entries say the same"
        )
    try:
        named = int(json.loads((log / _HINT).read_text(encoding="utf-8"))["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    if any(log.glob(f"{named:020}.checkpoint*")):
        return ""
    return (
        f". {_HINT} names a log checkpoint that is not there: if power was lost, stop all workers, "
        f"move {_HINT} out of {log}, and start them; the log's entries say the same"
    )


def _reads(path: Path) -> bool:
    try:
        pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return False
    return True
