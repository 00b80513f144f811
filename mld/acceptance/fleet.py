"""Workers of one application as processes of this machine, and what their children write down."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, Self

from kcl_mld.acceptance.journal import hold
from kcl_mld.acceptance.options import JOURNAL
from kcl_mld.acceptance.recording_child import VARIABLE
from kcl_mld.acceptance.rules.judge import KILLED
from kcl_mld.errors import MldError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kcl_mld.acceptance.budget import Budget
    from kcl_mld.acceptance.recording import RunRecording

#: The daemon of this installation, whatever folder the user stands in.
_DAEMON = (sys.executable, "-P", "-m", "kcl_mld", "--properties")
_KEEPER = (sys.executable, "-P", "-m", "kcl_mld.acceptance.keeper")
_CHILD = f"{sys.executable} -P -m kcl_mld.acceptance.recording_child"
_JOINED, _STOPPED = "joined", "stopped"
#: Above the worker's own time for a stop.
_STOP_S = 90.0
_LOOK_S = 0.25
_KILLED_CODE = 128 + signal.SIGKILL


class StageFailed(MldError):
    """Something that a stage waits for did not happen; the text says what."""


class Got(NamedTuple):
    """What children of a worker were given.

    Attributes:
        records: user records, each time that one was given.
        last_s: when, at last; seconds since 1970.
    """

    records: int
    last_s: float


class WorkerProcess:
    """A process, and its keeper, in a session of their own.

    Args:
        keeper: see ``kcl_mld.acceptance.keeper``; its exit code is that of the worker.
        pid: of the worker.
    """

    def __init__(self, name: str, keeper: subprocess.Popen[bytes], pid: int, log: Path) -> None:
        self.name = name
        self.keeper = keeper
        self.pid = pid
        self.log = log

    @property
    def code(self) -> int | None:
        """Its exit code, 128 + n for signal n; None while it runs."""
        return self.keeper.poll()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the worker alone."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    @property
    def is_running(self) -> bool:
        """Whether the process is there."""
        return self.code is None

    def end_of_log(self) -> str:
        """The last line."""
        return _last_line(self.log)


def _last_line(log: Path) -> str:
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else "it wrote no log"


class RunFleet:
    """Workers of one application; a context manager that leaves no process behind.

    Args:
        reader: name of the application.
        source: name of what it reads, in the recording.
        properties: of every worker, beside those that name the application and the worker.
        folder: exists, has the journal; gets a folder for each worker.
    """

    def __init__(
        self,
        reader: str,
        source: str,
        properties: Mapping[str, str],
        folder: Path,
        budget: Budget,
        recording: RunRecording,
    ) -> None:
        self.reader = reader
        self._properties = dict(properties)
        self._folder = folder
        self._budget = budget
        self._recording = recording
        self._children = folder / f"children-{reader}"
        self._children.mkdir()
        self.workers: list[WorkerProcess] = []
        self._keepers: list[subprocess.Popen[bytes]] = []
        #: Keepers have it, too: no clean-up begins while a worker is there.
        self._journal = hold(folder / JOURNAL)
        self._offsets: dict[Path, int] = {}
        self._seen: set[tuple[str, int]] = set()
        self._got: dict[tuple[str, str], Got] = {}
        recording.append("reader", name=reader, source=source)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Kill what runs; then what the children wrote down is added to the recording."""
        for keeper in self._keepers:
            if keeper.poll() is None:  # else its id may be another one's by now
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(keeper.pid, signal.SIGKILL)
            keeper.communicate()
        os.close(self._journal)
        for path in sorted(self._children.glob("*.jsonl")):
            self._recording.add_file(path)

    # -- workers -------------------------------------------------------------------------------

    def start(
        self,
        name: str,
        command: Sequence[str] = _DAEMON,
        changes: Mapping[str, str] = MappingProxyType({}),
    ) -> WorkerProcess:
        """One more worker; from here on shards may move to it.

        Args:
            command: the daemon; the name of the properties file follows.
            changes: of the properties of this worker.
        """
        folder = self._folder / name
        folder.mkdir()
        properties = {
            "executableName": _CHILD,
            "applicationName": self.reader,
            "workerId": name,
            **self._properties,
            **changes,
        }
        path = folder / "app.properties"
        path.write_text("".join(f"{key} = {value}\n" for key, value in properties.items()))
        environment = {
            **os.environ,
            f"{VARIABLE}FOLDER": str(self._children),
            f"{VARIABLE}READER": self.reader,
            f"{VARIABLE}WORKER": name,
        }
        log = folder / "log"
        log.touch()
        self._note_cause(_JOINED, "")
        with log.open("ab") as file:
            keeper = subprocess.Popen(  # noqa: S603 (this installation)
                [*_KEEPER, *command, str(path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=folder,
                env=environment,
                start_new_session=True,
                pass_fds=(self._journal,),
            )
        self._keepers.append(keeper)
        assert keeper.stdout is not None
        pid = keeper.stdout.readline()
        if not pid:
            keeper.communicate()
            raise StageFailed(f"{name} did not start: {_last_line(log)}")
        worker = WorkerProcess(name, keeper, int(pid), log)
        self.workers.append(worker)
        return worker

    def kill(self, worker: WorkerProcess) -> None:
        """``kill -9`` of the daemon; its children see the end of their stdin."""
        worker.signal(signal.SIGKILL)
        worker.keeper.wait()
        self._note_cause(KILLED, worker.name)

    def stop(self, worker: WorkerProcess) -> None:
        """SIGTERM, and exit code 0.

        Raises:
            StageFailed: another one, or none in time.
        """
        self._note_cause(_STOPPED, worker.name)
        worker.signal(signal.SIGTERM)
        self.until(lambda: not worker.is_running, f"{worker.name} has stopped", _STOP_S, worker)
        if worker.code:
            raise StageFailed(f"{worker.name} stopped with {worker.code}: {worker.end_of_log()}")

    def stop_all(self) -> None:
        """Stop one after the other."""
        for worker in self.workers:
            if worker.is_running:
                self.stop(worker)

    def _note_cause(self, cause: str, worker: str) -> None:
        self._recording.append(
            "cause", at=time.time(), reader=self.reader, cause=cause, worker=worker
        )

    # -- what children got -----------------------------------------------------------------------

    def has(self, records: set[tuple[str, int]]) -> bool:
        """Whether children were given all of these, each a key and a number."""
        self._look()
        return records <= self._seen

    def shards_of(self, worker: WorkerProcess, since_s: float) -> set[str]:
        """Shards of which it was given records after a time."""
        self._look()
        return {
            shard
            for (name, shard), got in self._got.items()
            if name == worker.name and got.last_s > since_s
        }

    def shards(self, since_s: float) -> set[str]:
        """Shards of which any worker was given records after a time."""
        return set().union(*(self.shards_of(worker, since_s) for worker in self.workers))

    def given_to_stopped(self) -> int:
        """User records that workers which were not killed were given, each time."""
        self._look()
        killed = {one.name for one in self.workers if one.code == _KILLED_CODE}
        return sum(got.records for (name, _), got in self._got.items() if name not in killed)

    def _look(self) -> None:
        for path in self._children.glob("*.jsonl"):
            offset = self._offsets.get(path, 0)
            with path.open("rb") as file:
                file.seek(offset)
                for line in file:
                    if line.endswith(b"\n"):
                        offset += len(line)
                        self._count(json.loads(line))
            self._offsets[path] = offset

    def _count(self, line: dict[str, object]) -> None:
        if line["what"] == "got":
            records = line["records"]
            assert isinstance(records, list)
            key = str(line["worker"]), str(line["shard"])
            before = self._got.get(key, Got(0, 0.0))
            self._got[key] = Got(before.records + len(records), float(str(line["at"])))
            self._seen |= {(record[2], record[3]) for record in records}

    def until(
        self,
        condition: Callable[[], object],
        what: str,
        timeout_s: float,
        ending: WorkerProcess | None = None,
    ) -> None:
        """Poll until the condition is true.

        Args:
            ending: the one worker that may end meanwhile.

        Raises:
            StageFailed: too late, or a worker ended by itself.
            BudgetExhausted: a limit of the run.
        """
        until_s = time.monotonic() + timeout_s
        while not condition():
            for worker in self.workers:
                if worker is not ending and worker.code not in (None, 0, _KILLED_CODE):
                    why = f"{worker.name} ended with {worker.code}: {worker.end_of_log()}"
                    raise StageFailed(why)
            if time.monotonic() > until_s:
                raise StageFailed(f"not within {timeout_s:.0f} s: {what}")
            self._budget.sleep(_LOOK_S)
