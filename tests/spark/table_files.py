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
        table: its directory; a log checkpoint may stand for entries that are gone.
    """
    live: dict[str, None] = {}
    log = table / "_delta_log"
    begin = 0
    if checkpoints := sorted(log.glob("*.checkpoint.parquet")):
        import pyarrow.parquet as pq  # noqa: PLC0415 (slow to import)

        begin = int(checkpoints[-1].name.split(".")[0]) + 1
        adds = pq.ParquetFile(checkpoints[-1]).read(columns=["add.path"]).column("add")
        live = dict.fromkeys(each["path"] for each in adds.to_pylist() if each)
    for commit in sorted(log.glob("*.json")):
        if int(commit.stem) < begin:
            continue
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            if "add" in action:
                live[action["add"]["path"]] = None
            if "remove" in action:
                live.pop(action["remove"]["path"], None)
    return [table / unquote(name) for name in live]
