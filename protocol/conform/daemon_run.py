"""One run of a daemon under test: its process, its output, and what its children recorded."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from protocol.conform.cloud import Cloud

SCRIPTED_CHILD: Final = Path(__file__).with_name("scripted_child.py")
#: Steps of a script: action -> what to do the first, second, … time.
Script: TypeAlias = "Mapping[str, Sequence[Sequence[Sequence[object]]]]"
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class ChildEntry:
    """One line of a scripted child's record.

    Attributes:
        at_s: epoch seconds.
        direction: ``in``, ``out``, ``start``, ``eof``, ``silence`` or ``exit``.
        what: the text read or written, or details.
    """

    at_s: float
    direction: str
    what: Any


class DaemonRun:
    """A daemon process in a folder of its own; a context manager that leaves nothing behind.

    Args:
        arguments: program and arguments, complete.
        folder: exists; gets the output and the children's records.
        environment: the whole environment of the process.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self._out_path, self._err_path = folder / "stdout", folder / "stderr"
        with self._out_path.open("wb") as out, self._err_path.open("wb") as err:
            self._process = subprocess.Popen(
                list(arguments),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def stdout(self) -> str:
        """Everything on stdout so far."""
        return self._out_path.read_text("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """Everything on stderr so far."""
        return self._err_path.read_text("utf-8", "replace")

    @property
    def output(self) -> str:
        """Both streams."""
        return self.stdout + self.stderr

    def exit_code(self, timeout_s: float) -> int | None:
        """The status as a shell sees it (128 + n for signal n); None if it still runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout_s)
            return 128 - code if code < 0 else code
        return None

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the daemon alone."""
        self._process.send_signal(number)

    def terminate_and_wait(self, timeout_s: float) -> int | None:
        """Ask the daemon to stop; its exit code, None if it still runs after that time."""
        self.signal(signal.SIGTERM)
        return self.exit_code(timeout_s)

    def kill(self) -> None:
        """End the daemon's session."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def open_gate(self) -> None:
        """Let the children go on that wait at a ``gate`` step."""
        (self.folder / "gate").touch()

    def children(self) -> list[list[ChildEntry]]:
        """The record of every child, in the order of their starts."""
        records = []
        for path in self.folder.glob("child-*.jsonl"):
            lines = path.read_text("utf-8").splitlines()
            entries = [json.loads(line) for line in lines if line.endswith("}")]
            if entries:
                records.append([ChildEntry(e["t"], e["dir"], e["what"]) for e in entries])
        return sorted(records, key=lambda entries: entries[0].at_s)

    def lines(self, direction: str = "in") -> list[str]:
        """All lines of that direction of all children, in the order of time."""
        entries = [entry for child in self.children() for entry in child]
        entries.sort(key=lambda entry: entry.at_s)
        return [str(entry.what) for entry in entries if entry.direction == direction]

    def actions(self, direction: str = "in") -> list[str]:
        """The actions of those lines; those that are no message are left out."""
        found = []
        for line in self.lines(direction):
            with contextlib.suppress(ValueError, KeyError, TypeError):
                found.append(json.loads(line)["action"])
        return found

    def results(self) -> list[dict[str, Any]]:
        """The checkpoint results that children got."""
        return [
            json.loads(line) for line in self.lines() if line.startswith('{"action":"checkpoint"')
        ]

    def wait_for(self, condition: Callable[[DaemonRun], object], timeout_s: float) -> bool:
        """Poll until the condition holds; False if it never did or the daemon ended without it."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if condition(self):
                return True
            if self._process.poll() is not None:
                return bool(condition(self))
            time.sleep(_POLL_S)
        return False

    def wait_for_action(self, action: str, timeout_s: float, count: int = 1) -> bool:
        """Poll until that many lines with the action have reached children."""
        return self.wait_for(lambda run: run.actions().count(action) >= count, timeout_s)


def properties_text(values: Mapping[str, str]) -> str:
    """A properties file; keys and values as they are but for backslashes."""
    return "".join(f"{key} = {value}\n".replace("\\", "\\\\") for key, value in values.items())


def usual_properties(name: str, script: Path, cloud: Cloud) -> dict[str, str]:
    """What every case starts from: one application and one stream of that name."""
    return {
        "executableName": f"{sys.executable} {SCRIPTED_CHILD} {script}",
        "applicationName": name,
        "streamName": name,
        "AWSCredentialsProvider": "DefaultCredentialsProvider",
        "regionName": "us-east-1",
        "kinesisEndpoint": cloud.kinesis_url,
        "dynamoDBEndpoint": cloud.dynamodb_url,
        "initialPositionInStream": "TRIM_HORIZON",
        "retrievalMode": "POLLING",
        "idleTimeBetweenReadsInMillis": "250",
        "metricsLevel": "NONE",
        "workerId": "kit",
    }
