"""A child that records its messages and plays a script; standard library only, any Python 3.

``python scripted_child.py SCRIPT.json [more arguments]``. The script is a JSON object::

    {"record": "FOLDER", "actions": {"processRecords": [[STEP, …], [STEP, …]], …}}

The n-th time an action arrives its n-th list of steps is played, the last one from then on; an
action without an entry is answered with its status. ``eof`` is played at the end of stdin. Steps:

* ``["status"]``, ``["status", "other action"]``: write a status;
* ``["write", "text"]``: write text as it is;
* ``["checkpoint", SEQUENCE, SUB]``: ask and wait for the answer; ``$first`` and ``$last`` stand for
  sequence numbers of the batch, ``$above`` for one more than the last;
* ``["silence", SECONDS]``: wait that long for a line that must not come;
* ``["gate"]``: wait until there is a file ``gate`` in the folder;
* ``["stderr", "text"]``, ``["sleep", SECONDS]``, ``["exit", CODE]``.

Everything read and written goes to ``FOLDER/child-PID.jsonl`` with the time.
"""

from __future__ import annotations

import json
import os
import select
import sys
import time
from typing import Any


class Child:
    """The script, its log and the two pipes."""

    def __init__(self, script: dict[str, Any], stdin: int = 0, stdout: int = 1) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._actions: dict[str, list[list[list[Any]]]] = script["actions"]
        self._seen: dict[str, int] = {}
        self._sequence_numbers: list[str] = []
        path = os.path.join(script["record"], f"child-{os.getpid()}.jsonl")
        self._log = open(path, "a", encoding="utf-8")  # noqa: SIM115 - open for life
        self._buffer = b""
        self._gate = os.path.join(script["record"], "gate")
        self._say("start", {"argv": sys.argv, "cwd": os.getcwd()})

    def _say(self, direction: str, what: Any) -> None:
        self._log.write(json.dumps({"t": time.time(), "dir": direction, "what": what}) + "\n")
        self._log.flush()

    def run(self) -> None:
        """Play until the end of stdin."""
        while (line := self._read_line(None)) is not None:
            message = json.loads(line)
            action = message["action"]
            records = message.get("records") or []
            if records:
                self._sequence_numbers = [record["sequenceNumber"] for record in records]
            self._play(action, self._steps(action, [["status"]]))
        self._play("eof", self._steps("eof", []))

    def _steps(self, action: str, otherwise: list[list[Any]]) -> list[list[Any]]:
        lists = self._actions.get(action, [otherwise])
        number = self._seen.get(action, 0)
        self._seen[action] = number + 1
        return lists[min(number, len(lists) - 1)]

    def _play(self, action: str, steps: list[list[Any]]) -> None:
        for name, *arguments in steps:
            if name == "status":
                named = arguments[0] if arguments else action
                self._write(json.dumps({"action": "status", "responseFor": named}) + "\n")
            elif name == "write":
                self._write(arguments[0])
            elif name == "checkpoint":
                request = {"action": "checkpoint", "sequenceNumber": self._position(arguments[0])}
                request["subSequenceNumber"] = arguments[1]
                self._write(json.dumps(request) + "\n")
                self._read_line(None)
            elif name == "silence":
                self._read_line(float(arguments[0]))
            elif name == "gate":
                self._wait_at_gate()
            elif name == "stderr":
                sys.stderr.write(arguments[0] + "\n")
                sys.stderr.flush()
            elif name == "sleep":
                time.sleep(arguments[0])
            elif name == "exit":
                self._say("exit", arguments[0])
                os._exit(arguments[0])
            else:
                raise ValueError(name)

    def _wait_at_gate(self) -> None:
        while not os.path.exists(self._gate):
            time.sleep(0.01)

    def _position(self, position: Any) -> Any:
        if position == "$first":
            return self._sequence_numbers[0]
        if position == "$last":
            return self._sequence_numbers[-1]
        if position == "$above":
            return str(int(self._sequence_numbers[-1]) + 1)
        return position

    def _write(self, text: str) -> None:
        self._say("out", text)
        os.write(self._stdout, text.encode())

    def _read_line(self, timeout_s: float | None) -> str | None:
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._stdin], [], [], timeout_s)
            if not ready:
                self._say("silence", timeout_s)
                return None
            chunk = os.read(self._stdin, 1 << 16)
            if not chunk:
                self._say("eof", None)
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        text = line.decode("utf-8", "replace")
        self._say("in", text)
        return text


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as source:
        SCRIPT = json.load(source)
    Child(SCRIPT).run()
