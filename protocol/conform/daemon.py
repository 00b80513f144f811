"""``conform daemon -- CMD… {properties}``: run a daemon with scripted children and judge it.

Each case writes a properties file and a script, starts the command with ``{properties}`` replaced
by the file's path, and looks from outside: exit code, output, what the children recorded, and the
lease table. What Java does is the measure; where ``kcl-mld`` decided otherwise the finding says
*differs* and names the row of ``docs/differences.md``.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from protocol.conform import items
from protocol.conform.daemon_run import DaemonRun, Script, properties_text, usual_properties
from protocol.conform.report import Finding, Report, differs, failed, judged, passed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from protocol.conform.baselines import Baseline
    from protocol.conform.cloud import Cloud

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
        implementation: whose expectations apply.
        cloud: the AWS that the daemon talks to.
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
        """What the credentials key says for the default chain."""
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
            item_id: the item.
            run: the daemon.
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
        about = (item for item in items.load() if item.group not in {"CHILD", "PY"})
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
            except KeyboardInterrupt:  # what was seen so far is worth showing
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
