"""The file of a run: JSON lines, see ``kcl_mld.acceptance.rules.recorded`` for what they say."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class RunRecording:
    """Appends lines; thread-safe.

    Args:
        path: made with its first line; later runs append.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def append(self, what: str, **fields: Any) -> None:
        """One line; returns when the kernel has it."""
        line = json.dumps({"what": what, **fields}, separators=(",", ":")) + "\n"
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.write(line)

    def add_file(self, path: Path) -> None:
        """The lines of another file."""
        lines = [json.dumps(line, separators=(",", ":")) + "\n" for line in read_lines(path)]
        with self._lock, self.path.open("a", encoding="utf-8") as file:
            file.writelines(lines)

    def lines(self) -> Iterator[dict[str, Any]]:
        """All lines, parsed, one after the other."""
        return read_lines(self.path)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file; one that a killed process did not finish is left out."""
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)
