"""The files of a Delta table, read from its log by no reader's code."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import unquote

if TYPE_CHECKING:
    from pathlib import Path


def table_files(table: Path) -> list[Path]:
    """Those that the log names, in the order of their commits; none if there is no table yet.

    Args:
        table: its directory; the log has no checkpoint that replaces entries.
    """
    live: dict[str, None] = {}
    for commit in sorted((table / "_delta_log").glob("*.json")):
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = None
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
    return [table / unquote(name) for name in live]
