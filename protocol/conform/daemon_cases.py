"""Cases for the daemon kit: the wire, checkpoints, children, and stopping."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Final

from protocol.conform import daemon_config
from protocol.conform.checkpoint_cases import CASES as CHECKPOINT_CASES
from protocol.conform.report import Finding, differs, failed, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.daemon_run import DaemonRun, Script

_SHARD: Final = "shardId-000000000000"
_GRACE: Final[dict[str, str | None]] = {"shutdownGraceMillis": "20000"}
_RECORD: Final = re.compile(
    r'\{"data":"aGk=","partitionKey":"pk","sequenceNumber":"\d+",'
    r'"approximateArrivalTimestamp":\d{13},"subSequenceNumber":0,"action":"record"\}'
)
#: The exit codes of a graceful stop: Java dies of the signal, kcl-mld ends with 0.
_STOPPED: Final = (143, 0)


def _prepare(kit: DaemonKit, name: str, shards: int = 1) -> None:
    kit.cloud.create_stream(name, shards)
    kit.cloud.put(name, [(b"hi", "pk")])


def _stop(kit: DaemonKit, run: DaemonRun, number: signal.Signals = signal.SIGTERM) -> int | None:
    run.signal(number)
    return run.exit_code(kit.limits.step_s)


def _stopped(kit: DaemonKit, item_id: str, code: int | None, ok: object, evidence: str) -> Finding:
    """The verdict on a graceful stop with everything else in order."""
    return kit.decided(
        item_id,
        as_java=ok and code == _STOPPED[0],
        row="graceful-stop",
        otherwise=ok and code == _STOPPED[1],
        evidence=f"exit {code}: {evidence}",
    )


def _strict(run: DaemonRun) -> bool:
    """Whether no child got an action before its answer to the last."""
    for child in run.children():
        owed = False
        for entry in child:
            text = str(entry.what)
            if entry.direction == "in" and '{"action":"checkpoint"' not in text:
                if owed:
                    return False
                owed = True
            elif entry.direction == "out" and '"status"' in text:
                owed = False
    return True


def a_whole_life(kit: DaemonKit) -> Iterator[Finding]:
    """Records, a checkpoint, a graceful stop, and a second start from the checkpoint."""
    name = "life"
    kit.cloud.create_stream(name, 1)
    strange = '"\\\n\x01'
    kit.cloud.put(name, [(b"hi", "pk"), (b"\xfb" * 3, strange), (b"", "pk")])
    ask: list[Sequence[object]] = [["checkpoint", None, None], ["status"]]
    script: Script = {"processRecords": [ask], "shutdownRequested": [ask]}
    with kit.start(name, _GRACE, script) as run:
        run.wait_for(lambda found: found.results(), kit.limits.start_s)
        code = _stop(kit, run)
        lines = run.lines()
        yield from _first_lines(lines)
        actions = run.actions()
        ends = actions[-3:] == ["shutdownRequested", "checkpoint", "leaseLost"]
        eof = bool(run.children()) and run.children()[0][-1].direction == "eof"
        yield _stopped(kit, "SHUT-03", code, ends and eof, " ".join(actions))
        yield judged("WIRE-09", '{"action":"leaseLost"}' in lines, "leaseLost")
        yield judged("WIRE-11", '{"action":"shutdownRequested"}' in lines, "shutdownRequested")
        yield judged("WIRE-12", all(lines), f"{len(lines)} lines, none empty")
        yield judged("WIRE-13", _strict(run), "each action waited for the last status")
        yield judged("LIFE-06", eof, "stdin was closed after leaseLost")
        results = run.results()
        stored = results and results[-1]["error"] is None
        yield judged("SHUT-08", stored, json.dumps(results[-1:]))
    rows = kit.cloud.lease_rows(name)
    if not rows or not str(rows[0]["checkpoint"]).isdigit():
        yield failed("WIRE-02", "no checkpoint was stored")
        return
    kit.cloud.change_lease(name, _SHARD, {"checkpointSubSequenceNumber": 3})
    wanted = f'"sequenceNumber":"{rows[0]["checkpoint"]}","subSequenceNumber":3}}'
    with kit.start(name, _GRACE, again="-again") as run:
        run.wait_for_action("initialize", kit.limits.start_s)
        line = (run.lines() or ["no child"])[0]
        yield judged("WIRE-02", line.endswith(wanted), line)


def _first_lines(lines: list[str]) -> Iterator[Finding]:
    first = lines[0] if lines else "no child"
    wanted = f'{{"action":"initialize","shardId":"{_SHARD}","sequenceNumber":"TRIM_HORIZON"'
    yield judged("WIRE-01", first == wanted + ',"subSequenceNumber":0}', first)
    batches = "\n".join(line for line in lines if '"processRecords"' in line)
    shape = re.search(r'^\{"action":"processRecords","records":\[', batches)
    tail = re.search(r'\],"millisBehindLatest":\d+\}$', batches)
    yield judged("WIRE-03", shape and tail and _RECORD.search(batches), batches)
    yield judged("WIRE-05", '"data":"+/v7"' in batches, "+/v7")
    yield judged("WIRE-06", '"data":"","partitionKey"' in batches, "empty data is an empty string")
    escaped = '"partitionKey":"\\"\\\\\\n\\u0001"'
    yield judged("WIRE-07", escaped in batches, escaped)
    yield judged("WIRE-08", re.search(r'Timestamp":\d{13},', batches), "whole milliseconds")


def noise_between_messages(kit: DaemonKit) -> Iterator[Finding]:
    """Lines that count, and lines that do not; the next batch shows that the answer was taken."""
    name = "noise"
    kit.cloud.create_stream(name, 1)
    status = '{"action":"status","responseFor":"processRecords"}'
    noise = (
        'text\n\n   \n{"action":\n{"action":"bogus"}\n[1,2,3]\n42\n'
        '{"action":"status","responseFor":"processRecords","extra":1}\n'
    )
    answers = (
        ("WIRE-14", noise + status + "\n"),
        ("WIRE-15", status + " junk\n"),
        ("WIRE-16", '{ "responseFor" : "processRecords" , "action" : "status" }\n'),
        ("WIRE-17", '{"action":"initialize","shardId":"x"}\n' + status + "\n"),
        ("WIRE-22", status + "\r\n"),
    )
    steps: Sequence[Sequence[Sequence[object]]] = [[["write", text]] for _, text in answers]
    script: Script = {
        "initialize": [[["stderr", "oops"], ["status"]]],
        "processRecords": [*steps, [["status"]]],
        "leaseLost": [[["status"], ["write", "after the last status\n"]]],
    }
    with kit.start(name, _GRACE, script) as run:
        run.wait_for_action("initialize", kit.limits.start_s)
        for number, (item_id, text) in enumerate(answers, 1):
            kit.cloud.put(name, [(b"x", "k")])
            run.wait_for_action("processRecords", kit.limits.step_s, number)
            kit.cloud.put(name, [(b"x", "k")])
            ok = run.wait_for_action("processRecords", kit.limits.step_s, number + 1)
            yield judged(item_id, ok, repr(text[-70:]))
        code = _stop(kit, run)
        oops = [line for line in run.stderr.splitlines() if "oops" in line]
        yield judged("LIFE-08", oops, (oops or ["nothing on the daemon's stderr"])[0])
        drained = not kit.is_java or "Drained line for shard" in run.output
        yield judged("LIFE-07", drained and code in _STOPPED, f"exit {code}, drained")


def a_bare_null(kit: DaemonKit) -> Iterator[Finding]:
    """Java dies of the word null."""
    _prepare(kit, "null")
    script: Script = {"processRecords": [[["write", "null\n"], ["status"]], [["status"]]]}
    with kit.start("null", None, script) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        kit.cloud.put("null", [(b"x", "k")])
        went_on = run.wait_for_action("processRecords", kit.limits.step_s, 2)
        code = run.exit_code(kit.limits.step_s if kit.is_java else 0)
        evidence = "the line was skipped" if went_on else f"exit {code}"
        yield kit.decided(
            "WIRE-18", as_java=code == 1, row="null-line", otherwise=went_on, evidence=evidence
        )


def failures_of_a_child(kit: DaemonKit) -> Iterator[Finding]:
    """What a child can do wrong; the daemon ends with exit code 1."""
    cases: tuple[tuple[str, str, list[Sequence[object]], str], ...] = (
        ("WIRE-20", "wrong", [["status", "initialize"]], "process records"),
        ("LIFE-05", "exits", [["exit", 3]], "Child process exited with value: 3"),
    )
    for item_id, name, steps, text in cases:
        _prepare(kit, name)
        script: Script = {"processRecords": [steps]}
        with kit.start(name, None, script) as run:
            run.wait_for_action("processRecords", kit.limits.start_s)
            code = run.exit_code(kit.limits.step_s)
            told = not kit.is_java or text in run.output
            last = (run.output.strip().splitlines() or [""])[-1]
            yield judged(item_id, code == 1 and told, f"exit {code}: {last}")


def a_legacy_checkpoint(kit: DaemonKit) -> Iterator[Finding]:
    """A request with an unknown field gets no answer."""
    _prepare(kit, "legacy")
    legacy = '{"action":"checkpoint","checkpoint":"12"}\n'
    script: Script = {"processRecords": [[["write", legacy], ["silence", 3], ["status"]]]}
    with kit.start("legacy", None, script) as run:
        run.wait_for(lambda found: "3" in str(found.lines("silence")), kit.limits.start_s)
        ok = run.lines("silence") and not run.results()
        yield judged("WIRE-19", ok, f"{len(run.results())} answers within 3 s")


def a_surplus_status(kit: DaemonKit) -> Iterator[Finding]:
    """A status too many answers the next action."""
    name = "surplus"
    kit.cloud.create_stream(name, 1)
    script: Script = {
        "initialize": [[["status"], ["status", "processRecords"]]],
        "processRecords": [[]],
    }
    with kit.start(name, None, script) as run:
        run.wait_for_action("initialize", kit.limits.start_s)
        for count in (1, 2):
            kit.cloud.put(name, [(b"x", "k")])
            run.wait_for_action("processRecords", kit.limits.step_s, count)
        got = run.actions().count("processRecords")
        yield judged("WIRE-21", got == 2, f"{got} batches, one status written for them")


def empty_batches(kit: DaemonKit) -> Iterator[Finding]:
    """The child is called without records if the file says so; empty data is an empty string."""
    kit.cloud.create_stream("empty", 1)
    changes: dict[str, str | None] = {"callProcessRecordsEvenForEmptyRecordList": "true"}
    pattern = r'\{"action":"processRecords","records":\[\],"millisBehindLatest":(null|\d+)\}'
    with kit.start("empty", changes) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        line = next((x for x in run.lines() if '"processRecords"' in x), "no batch")
        yield judged("WIRE-04", re.fullmatch(pattern, line), line)


def programs_that_do_not_start(kit: DaemonKit) -> Iterator[Finding]:
    """A program that is not there, and one in quotes."""
    text = "Encountered an error while trying to initialize record processor"
    for item_id, name, command in (
        ("LIFE-02", "quoted", '"my prog" x'),
        ("LIFE-04", "nosuch", "/nonexistent/program"),
    ):
        _prepare(kit, name)
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
        ok = shards == [_SHARD, "shardId-000000000001"] and len(run.children()) == 2
        yield judged("LIFE-03", ok, f"{len(run.children())} children: {', '.join(shards)}")


def failures_at_the_shutdown_notice(kit: DaemonKit) -> Iterator[Finding]:
    """A wrong answer to shutdownRequested is survived; a dead child cannot answer leaseLost."""
    for item_id, name, steps in (
        ("LIFE-11", "badnotice", [["status", "initialize"]]),
        ("LIFE-12", "deadnotice", [["exit", 0]]),
    ):
        _prepare(kit, name)
        with kit.start(name, _GRACE, {"shutdownRequested": [steps]}) as run:
            run.wait_for_action("processRecords", kit.limits.start_s)
            code = _stop(kit, run)
            told = "leaseLost" in run.actions()
            ok = told if item_id == "LIFE-11" else code not in {0, None}
            actions = " ".join(run.actions())
            yield judged(item_id, ok, f"exit {code}: {actions}")


def silent_children(kit: DaemonKit) -> Iterator[Finding]:
    """The limit for answers, and a limit of nothing."""
    _prepare(kit, "silent")
    slow: Script = {"processRecords": [[["sleep", 60]]]}
    with kit.start("silent", {"timeoutInSeconds": "1"}, slow) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        code = run.exit_code(kit.limits.step_s)
        yield judged("LIFE-14", code == 1, f"exit {code}")
    _prepare(kit, "zero")
    with kit.start("zero", {"timeoutInSeconds": "0"}) as run:
        code = run.exit_code(kit.limits.start_s)
        yield kit.decided(
            "LIFE-15",
            as_java=code == 1,
            row="late-errors",
            otherwise=code == 2 and "timeoutInSeconds" in run.output,
            evidence=f"exit {code}",
        )


def a_child_that_lingers(kit: DaemonKit) -> Iterator[Finding]:
    """The daemon waits for a child that takes its time after the end of stdin."""
    _prepare(kit, "linger")
    script: Script = {"eof": [[["sleep", 3], ["exit", 0]]]}
    with kit.start("linger", _GRACE, script) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        code = _stop(kit, run)
        waited = bool(run.lines("exit"))
        yield judged("LIFE-17", waited and code in _STOPPED, f"exit {code}, waited: {waited}")


def one_thread(kit: DaemonKit) -> Iterator[Finding]:
    """Java's fixed pool of one thread never starts a child."""
    _prepare(kit, "onethread")
    with kit.start("onethread", {"maxActiveThreads": "1"}) as run:
        started = run.wait_for_action("processRecords", kit.limits.start_s)
        yield kit.decided(
            "LIFE-18",
            as_java=not started and run.exit_code(0) is None,
            row="active-threads",
            otherwise=started,
            evidence="a batch was delivered" if started else "nothing happened",
        )


def stops_without_grace(kit: DaemonKit) -> Iterator[Finding]:
    """The default: Java's children never hear of the stop."""
    for item_id, name, number in (
        ("SHUT-01", "sigterm", signal.SIGTERM),
        ("SHUT-02", "sigint", signal.SIGINT),
    ):
        _prepare(kit, name)
        with kit.start(name) as run:
            run.wait_for_action("processRecords", kit.limits.start_s)
            code = _stop(kit, run, number)
            told = "shutdownRequested" in run.actions()
            yield kit.decided(
                item_id,
                as_java=code == 128 + number and not told,
                row="graceful-stop",
                otherwise=code == 0 and told,
                evidence=f"exit {code}: {' '.join(run.actions())}",
            )


def stops_during_a_batch(kit: DaemonKit) -> Iterator[Finding]:
    """A batch in hand is finished first, if the grace allows."""
    _prepare(kit, "busy")
    slow: Script = {"processRecords": [[["sleep", 2], ["status"]]]}
    with kit.start("busy", _GRACE, slow) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        code = _stop(kit, run)
        ok = _strict(run) and "shutdownRequested" in run.actions()
        yield _stopped(kit, "SHUT-04", code, ok, " ".join(run.actions()))
    _prepare(kit, "tooshort")
    slower: Script = {"processRecords": [[["sleep", 15], ["status"]]]}
    with kit.start("tooshort", {"shutdownGraceMillis": "1000"}, slower) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        code = _stop(kit, run)
        yield judged("SHUT-05", code == 143, f"exit {code}")


def an_unreachable_table(kit: DaemonKit) -> Iterator[Finding]:
    """Java gives up after 20 attempts and reports success."""
    kit.cloud.create_stream("nodynamo", 1)
    changes: dict[str, str | None] = {"dynamoDBEndpoint": "http://127.0.0.1:9"}
    with kit.start("nodynamo", changes) as run:
        code = run.exit_code(150.0)
        if code not in {None, 0} and not kit.is_java:
            yield differs("SHUT-06", "init-failure", f"exit {code}")
        else:
            yield judged("SHUT-06", code == 0, f"exit {code}")


ALL: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    *daemon_config.CASES,
    a_whole_life,
    noise_between_messages,
    a_bare_null,
    failures_of_a_child,
    a_legacy_checkpoint,
    a_surplus_status,
    empty_batches,
    programs_that_do_not_start,
    two_shards,
    failures_at_the_shutdown_notice,
    silent_children,
    a_child_that_lingers,
    one_thread,
    stops_without_grace,
    stops_during_a_batch,
    an_unreachable_table,
    *CHECKPOINT_CASES,
)
