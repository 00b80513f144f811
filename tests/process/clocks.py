"""Workers with other wall clocks than this machine's."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.process.daemon import Application, Running

PROGRAM = Path(__file__).resolve().parents[1] / "data" / "other_clock.py"


class Clocks:
    """Wall clocks of workers: each off by so many seconds, which may change while they run."""

    def __init__(self, app: Application, **offsets_s: float) -> None:
        self.files = {name: app.folder / f"clock-{name}" for name in offsets_s}
        self.jump(**offsets_s)

    def jump(self, **offsets_s: float) -> None:
        """These workers' clocks are set."""
        for name, seconds in offsets_s.items():
            new = self.files[name].with_suffix(".new")
            new.write_text(str(seconds))
            new.replace(self.files[name])

    def launcher(self, name: str) -> tuple[str, ...]:
        """What ``python -m MODULE …`` follows, to run by that clock."""
        return sys.executable, str(PROGRAM), str(self.files[name])

    def start(self, app: Application, name: str, **properties: str) -> Running:
        """A worker of that name, by its clock."""
        return app.start(worker=name, launcher=self.launcher(name), **properties)
