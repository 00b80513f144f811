"""``conform daemon -- CMD… {properties}``: run a daemon with scripted children and judge it.

Each case writes a properties file and a script, starts the command with ``{properties}`` replaced
by the path of the file, and watches from outside: exit code, output, what the children recorded,
and the lease table. What Java does is the measure; where ``kcl-mld`` decided otherwise the finding
reports *differs* and names the row of ``docs/differences.md``.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, Self, TypeAlias

from kcl_mld_protocol.conform.report import (
    Finding,
    Report,
    differs,
    failed,
    judged,
    load_items,
    passed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from kcl_mld_protocol.conform.report import Baseline


class Cloud(Protocol):
    """An embedded Kinesis and DynamoDB that the kit can prepare and examine."""

    @property
    def kinesis_url(self) -> str:
        """Endpoint of Kinesis, e.g. ``http://127.0.0.1:4567``."""

    @property
    def dynamodb_url(self) -> str:
        """Endpoint of DynamoDB."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Credentials, region and the like for the daemon's process."""

    def create_stream(self, stream: str, shards: int) -> None:
        """A stream of that many shards, ACTIVE on return."""

    def put(self, stream: str, records: Sequence[tuple[bytes, str]]) -> None:
        """Put (data, partition key) pairs, in order."""

    def split(self, stream: str, shard_id: str) -> None:
        """Split a shard in the middle of its range; return when its children exist."""

    def lease_rows(self, table: str) -> list[dict[str, Any]]:
        """Items of a table that have a ``checkpoint``, as plain values; empty without a table."""

    def change_lease(self, table: str, lease_key: str, values: Mapping[str, str | int]) -> None:
        """Overwrite attributes of one item."""

    def consumers(self, stream: str) -> int:
        """How many fan-out consumers are registered with the stream."""

    def fail(self, operation: str, contains: str, code: str | None) -> None:
        """From now on answer matching DynamoDB requests with an error.

        Args:
            operation: e.g. ``UpdateItem``.
            contains: text in the request's body.
            code: name of the error; None = close the connection without an answer.
        """

    def heal(self) -> None:
        """Take back every :meth:`fail`."""


SCRIPTED_CHILD: Final = Path(__file__).with_name("scripted_child.py")
#: Steps of a script: action -> what the child does the first, second, … time.
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
        """Let the children that wait at a ``gate`` step continue."""
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

    def last_line(self) -> str:
        """The last line that the daemon printed; empty if there is none."""
        return (self.output.strip().splitlines() or [""])[-1]

    def actions(self) -> list[str]:
        """The actions of the lines that children got; those that are no message are left out."""
        found = []
        for line in self.lines():
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


#: ``java``: KCL 3.x; ``java-2``: KCL 2.x, whose credentials have the names of the first AWS SDK.
DaemonName: TypeAlias = Literal["java", "java-2", "kcl-mld"]

_PLACEHOLDER: Final = "{properties}"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long to wait for what, in seconds.

    Attributes:
        start_s: from the process's start to the first message of a child.
        refuse_s: from the process's start to the exit of a daemon that refuses its input.
        step_s: for anything else.
        give_up_s: from the process's start to the exit of a daemon that cannot reach its table.
    """

    start_s: float
    refuse_s: float
    step_s: float
    give_up_s: float


#: Java needs some 90 s to start on an empty table.
LIMITS: Final[dict[DaemonName, Limits]] = {
    "java": Limits(150.0, 30.0, 60.0, 150.0),
    "java-2": Limits(150.0, 30.0, 60.0, 150.0),
    "kcl-mld": Limits(60.0, 60.0, 60.0, 150.0),
}


class DaemonKit:
    """Runs all cases against one daemon command.

    Args:
        command: program and arguments; one argument contains ``{properties}``.
        folder: an existing empty folder for the cases' files.
        jobs: cases that run at the same time, >= 1.
    """

    def __init__(
        self,
        command: Sequence[str],
        implementation: DaemonName,
        cloud: Cloud,
        folder: Path,
        jobs: int = 1,
    ) -> None:
        if not any(_PLACEHOLDER in argument for argument in command):
            raise ValueError(f"the command needs an argument {_PLACEHOLDER}")
        # Every run has a folder of its own, so a relative path to the program must not stay one.
        program = Path(command[0])
        found = str(program.absolute()) if os.sep in command[0] else command[0]
        self._command = (found, *command[1:])
        self.implementation = implementation
        self.cloud = cloud
        self.limits = LIMITS[implementation]
        self._folder = folder
        self._jobs = jobs

    @property
    def is_java(self) -> bool:
        """Whether exact texts and codes of the Java daemon are expected."""
        return self.implementation != "kcl-mld"

    @property
    def default_credentials(self) -> str:
        """The value of the credentials key for the default chain."""
        if self.implementation == "java-2":
            return "DefaultAWSCredentialsProviderChain"
        return "DefaultCredentialsProvider"

    @property
    def program(self) -> tuple[str, ...]:
        """The command without its properties argument and the option before it."""
        position = next(i for i, part in enumerate(self._command) if _PLACEHOLDER in part)
        before = self._command[:position]
        return before[:-1] if before and before[-1].startswith("-") else before

    # --- starting ------------------------------------------------------------------------------

    def folder_of(self, name: str) -> Path:
        """Where the run of that name keeps its files; made when it starts."""
        return self._folder / name

    def new_folder(self, name: str) -> Path:
        """A folder for one run."""
        folder = self.folder_of(name)
        folder.mkdir()
        return folder

    def start(
        self,
        name: str,
        changes: Mapping[str, str | None] | None = None,
        script: Script | None = None,
        *,
        raw: bytes = b"",
        again: str = "",
        without: Iterable[str] = (),
        extra: Mapping[str, str] | None = None,
    ) -> DaemonRun:
        """A daemon on the application and stream ``name``.

        Args:
            name: unique to the case.
            changes: properties to set, or with None to leave out.
            script: for the children; without an entry an action is answered.
            raw: bytes of the properties file after the usual entries.
            again: distinguishes a second run of the same application.
            without: names to leave out of the environment.
            extra: additions to the environment.
        """
        folder = self.new_folder(name + again)
        script_path = folder / "script.json"
        script_path.write_text(json.dumps({"record": str(folder), "actions": script or {}}))
        values: dict[str, str | None] = {**self.usual_properties(name, script_path)}
        values |= changes or {}
        kept = {key: value for key, value in values.items() if value is not None}
        path = folder / "app.properties"
        path.write_bytes(properties_text(kept).encode("latin-1") + raw)
        arguments = [part.replace(_PLACEHOLDER, str(path)) for part in self._command]
        return DaemonRun(arguments, folder, self.environment(without) | dict(extra or {}))

    def usual_properties(self, name: str, script: Path) -> dict[str, str]:
        """What every case starts from: one application and one stream of that name."""
        usual = usual_properties(name, script, self.cloud)
        usual["AWSCredentialsProvider"] = self.default_credentials
        if self.is_java:
            # It sleeps that long before its first lease, and takes leases at twice the other pace.
            usual |= {"shardSyncIntervalMillis": "1000", "failoverTimeMillis": "5000"}
        return usual

    def start_with(self, name: str, *arguments: str, files: Mapping[str, str]) -> DaemonRun:
        """The program with other arguments, in a folder with these files."""
        folder = self.new_folder(name)
        for file_name, text in files.items():
            (folder / file_name).write_text(text)
        return DaemonRun([*self.program, *arguments], folder, self.environment())

    def environment(self, without: Iterable[str] = ()) -> dict[str, str]:
        """The environment of a daemon."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        both = kept | dict(self.cloud.environment)
        return {key: value for key, value in both.items() if key not in set(without)}

    # --- judging -------------------------------------------------------------------------------

    def decided(
        self, item_id: str, *, as_java: object, row: str, otherwise: object, evidence: str
    ) -> Finding:
        """The verdict where kcl-mld may do either Java's thing or another, decided one."""
        if as_java:
            return passed(item_id, evidence)
        if not self.is_java and otherwise:
            return differs(item_id, row, evidence)
        return failed(item_id, evidence)

    def refused(self, item_id: str, run: DaemonRun, text: str, hint: str = "") -> Finding:
        """The verdict on input that Java refuses with exit 1 and this text, kcl-mld with exit 2.

        Args:
            text: must be in Java's output.
            hint: must be in kcl-mld's output, upper and lower case alike; empty = anything.
        """
        code = run.exit_code(self.limits.refuse_s)
        last = (run.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        looked_for = text if self.is_java else hint
        lines = (line for line in run.stderr.splitlines() if looked_for.lower() in line.lower())
        last = next(lines, last) if looked_for else last
        return self.decided(
            item_id,
            as_java=code == 1 and text in run.output,
            row="exit-codes",
            otherwise=code == 2 and run.stderr.strip() and hint.lower() in run.output.lower(),
            evidence=f"exit {code}: {last}",
        )

    def started(self, item_id: str, run: DaemonRun, note: str = "") -> Finding:
        """The verdict on a daemon that has to reach its first child."""
        ok = run.wait_for_action("initialize", self.limits.start_s)
        if ok:
            return passed(item_id, "a child was initialized" + (f"; {note}" if note else ""))
        code = run.exit_code(0)
        last = (run.output.strip().splitlines() or ["no output"])[-1]
        return judged(item_id, ok, f"no child; exit {code}; {last}")

    # --- running -------------------------------------------------------------------------------

    def run(
        self,
        cases: Sequence[Callable[[DaemonKit], Iterator[Finding]]],
        progress: Callable[[str], object] = lambda _: None,
        *,
        baseline: Baseline | None = None,
        whole: bool = True,
    ) -> Report:
        """All cases.

        Args:
            cases: e.g. ``daemon_cases.ALL``.
            progress: called with the name of each finished case.
            baseline: verdicts to show beside the new ones.
            whole: these are all cases: report every item, not only those they came to.
        """
        about = (item for item in load_items() if item.group not in {"CHILD", "PY"})
        report = Report(about, baseline=baseline, whole=whole)
        with ThreadPoolExecutor(self._jobs) as pool:
            outcomes = [pool.submit(self._findings, case) for case in cases]
            try:
                for case, outcome in zip(cases, outcomes, strict=True):
                    findings, broken = outcome.result()
                    progress(case.__name__.replace("_", " "))
                    for finding in findings:
                        report.add(finding)
                    if broken:
                        report.broke_off(broken)
            except KeyboardInterrupt:  # the observations so far are worth showing
                pool.shutdown(wait=False, cancel_futures=True)
                report.broke_off("interrupted: the cases that had not begun are missing")
        return report

    def _findings(
        self, case: Callable[[DaemonKit], Iterator[Finding]]
    ) -> tuple[list[Finding], str]:
        """What a case found, and why it broke off, if it did."""
        found: list[Finding] = []
        try:
            found.extend(case(self))
        except Exception as error:  # noqa: BLE001 - one broken case must not hide the others
            return found, f"{case.__name__.replace('_', ' ')}: {type(error).__name__}: {error}"
        return found, ""
