"""The embedded AWS in a thread of the test."""

from __future__ import annotations

import json
import os
import queue
import threading
from typing import Any

from kcl_mld.local.__main__ import main
from kcl_mld.local.embedded import EmbeddedAws
from tests.leftovers import Snapshot

PATIENCE_S = 60


class InThisProcess(EmbeddedAws):
    """The same servers in a thread, so that what they do can be seen from here."""

    def start(self) -> InThisProcess:
        before = Snapshot.take()
        reader, writer = os.pipe()
        self._stdin = os.fdopen(reader, "rb")
        self._writer = os.fdopen(writer, "wb")
        lines: queue.Queue[str] = queue.Queue()
        argv = self._arguments[3:]
        options: dict[str, Any] = {"stdin": self._stdin, "announce": lines.put}
        self._thread = threading.Thread(target=main, args=(argv,), kwargs=options)
        self._thread.start()
        self._endpoints = json.loads(lines.get(timeout=PATIENCE_S))
        before.restore()  # what it sets for a process of its own
        return self

    def stop(self) -> None:
        self._writer.close()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it ends with its input"
        self._stdin.close()
