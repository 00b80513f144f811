"""Cases for the daemon kit: how children start, fail and end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from protocol.conform.report import Finding, judged
from protocol.conform.steps import GRACE, SHARD, STOPPED, prepare, stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.daemon_run import Script


def failures_of_a_child(kit: DaemonKit) -> Iterator[Finding]:
    """What a child can do wrong; the daemon ends with exit code 1."""
    cases: tuple[tuple[str, str, list[Sequence[object]], str], ...] = (
        ("WIRE-20", "wrong", [["status", "initialize"]], "process records"),
        ("LIFE-05", "exits", [["exit", 3]], "Child process exited with value: 3"),
    )
    for item_id, name, steps, text in cases:
        prepare(kit, name)
        script: Script = {"processRecords": [steps]}
        with kit.start(name, None, script) as run:
            told = run.wait_for_action("processRecords", kit.limits.start_s)
            code = run.exit_code(kit.limits.step_s)
            told = told and (not kit.is_java or text in run.output)
            last = (run.output.strip().splitlines() or [""])[-1]
            yield judged(item_id, code == 1 and told, f"exit {code}: {last}")


def programs_that_do_not_start(kit: DaemonKit) -> Iterator[Finding]:
    """A program that is not there, and one in quotes."""
    text = "Encountered an error while trying to initialize record processor"
    for item_id, name, command in (
        ("LIFE-02", "quoted", '"my prog" x'),
        ("LIFE-04", "nosuch", "/nonexistent/program"),
    ):
        prepare(kit, name)
        with kit.start(name, {"executableName": command}) as run:
            code = run.exit_code(kit.limits.start_s)
            told = text in run.output if kit.is_java else command.split()[0] in run.output
            last = (run.output.strip().splitlines() or [""])[-1]
            yield kit.decided(
                item_id,
                as_java=code == 1 and told,
                row="late-errors",
                otherwise=code == 2 and told,
                evidence=f"exit {code}: {last}",
            )


def two_shards(kit: DaemonKit) -> Iterator[Finding]:
    """A child per lease."""
    kit.cloud.create_stream("two", 2)
    with kit.start("two") as run:
        run.wait_for_action("initialize", kit.limits.start_s, 2)
        shards = sorted(json.loads(line)["shardId"] for line in run.lines()[:2])
        ok = shards == [SHARD, "shardId-000000000001"] and len(run.children()) == 2
        yield judged("LIFE-03", ok, f"{len(run.children())} children: {', '.join(shards)}")


def failures_at_the_shutdown_notice(kit: DaemonKit) -> Iterator[Finding]:
    """A wrong answer to shutdownRequested is survived; a dead child cannot answer leaseLost."""
    for item_id, name, steps in (
        ("LIFE-11", "badnotice", [["status", "initialize"]]),
        ("LIFE-12", "deadnotice", [["exit", 0]]),
    ):
        prepare(kit, name)
        with kit.start(name, GRACE, {"shutdownRequested": [steps]}) as run:
            run.wait_for_action("processRecords", kit.limits.start_s)
            code = stop(kit, run)
            told = "leaseLost" in run.actions()
            failed = "shutdownRequested" in run.actions() and code not in {0, None}
            ok = told if item_id == "LIFE-11" else failed
            actions = " ".join(run.actions())
            yield judged(item_id, ok, f"exit {code}: {actions}")


def silent_children(kit: DaemonKit) -> Iterator[Finding]:
    """The limit for answers, and a limit of nothing."""
    prepare(kit, "silent")
    slow: Script = {"processRecords": [[["sleep", 60]]]}
    with kit.start("silent", {"timeoutInSeconds": "1"}, slow) as run:
        told = run.wait_for_action("processRecords", kit.limits.start_s)
        code = run.exit_code(kit.limits.step_s)
        yield judged("LIFE-14", told and code == 1, f"exit {code}, batch delivered: {told}")
    prepare(kit, "zero")
    with kit.start("zero", {"timeoutInSeconds": "0"}) as run:
        code = run.exit_code(kit.limits.start_s)
        yield kit.decided(
            "LIFE-15",
            as_java=code == 1 and run.children(),
            row="late-errors",
            otherwise=code == 2 and "timeoutInSeconds" in run.output,
            evidence=f"exit {code}",
        )


def a_child_that_lingers(kit: DaemonKit) -> Iterator[Finding]:
    """The daemon waits for a child that takes its time after the end of stdin."""
    prepare(kit, "linger")
    script: Script = {"eof": [[["sleep", 3], ["exit", 0]]]}
    with kit.start("linger", GRACE, script) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        code = stop(kit, run)
        waited = bool(run.lines("exit"))
        yield judged("LIFE-17", waited and code in STOPPED, f"exit {code}, waited: {waited}")


def one_thread(kit: DaemonKit) -> Iterator[Finding]:
    """Java's fixed pool of one thread never starts a child."""
    prepare(kit, "onethread")
    with kit.start("onethread", {"maxActiveThreads": "1"}) as run:
        started = run.wait_for_action("processRecords", kit.limits.start_s)
        yield kit.decided(
            "LIFE-18",
            as_java=not started and run.exit_code(0) is None and kit.cloud.lease_rows("onethread"),
            row="active-threads",
            otherwise=started,
            evidence="a batch was delivered" if started else "nothing happened",
        )


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    failures_of_a_child,
    programs_that_do_not_start,
    two_shards,
    failures_at_the_shutdown_notice,
    silent_children,
    a_child_that_lingers,
    one_thread,
)
