"""Cases for the daemon kit: each message on the wire, and lines that are none."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from protocol.conform.report import Finding, failed, judged
from protocol.conform.steps import GRACE, SHARD, STOPPED, in_turn, prepare, stop, stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.daemon_run import Script

_RECORD: Final = re.compile(
    r'\{"data":"aGk=","partitionKey":"pk","sequenceNumber":"\d+",'
    r'"approximateArrivalTimestamp":\d{13},"subSequenceNumber":0,"action":"record"\}'
)


def a_whole_life(kit: DaemonKit) -> Iterator[Finding]:
    """Records, a checkpoint, a graceful stop, and a second start from the checkpoint."""
    name = "life"
    kit.cloud.create_stream(name, 1)
    strange = '"\\\n\x01'
    kit.cloud.put(name, [(b"hi", "pk"), (b"\xfb" * 3, strange), (b"", "pk")])
    ask: list[Sequence[object]] = [["checkpoint", None, None], ["status"]]
    script: Script = {"processRecords": [ask], "shutdownRequested": [ask]}
    with kit.start(name, GRACE, script) as run:
        run.wait_for(lambda found: found.results(), kit.limits.start_s)
        code = stop(kit, run)
        lines = run.lines()
        yield from _first_lines(lines)
        actions = run.actions()
        ends = actions[-3:] == ["shutdownRequested", "checkpoint", "leaseLost"]
        eof = bool(run.children()) and run.children()[0][-1].direction == "eof"
        yield stopped(kit, "SHUT-03", code, ends and eof, " ".join(actions))
        yield judged("WIRE-09", '{"action":"leaseLost"}' in lines, "leaseLost")
        yield judged("WIRE-11", '{"action":"shutdownRequested"}' in lines, "shutdownRequested")
        yield judged("WIRE-12", lines and all(lines), f"{len(lines)} lines, none empty")
        yield judged("WIRE-13", lines and in_turn(run), "each action waited for the last status")
        yield judged("LIFE-06", eof, "stdin was closed after leaseLost")
        results = run.results()
        stored = results and results[-1]["error"] is None
        yield judged("SHUT-08", stored, json.dumps(results[-1:]))
    rows = kit.cloud.lease_rows(name)
    if not rows or not str(rows[0]["checkpoint"]).isdigit():
        yield failed("WIRE-02", "no checkpoint was stored")
        return
    kit.cloud.change_lease(name, SHARD, {"checkpointSubSequenceNumber": 3})
    wanted = f'"sequenceNumber":"{rows[0]["checkpoint"]}","subSequenceNumber":3}}'
    with kit.start(name, GRACE, again="-again") as run:
        run.wait_for_action("initialize", kit.limits.start_s)
        line = (run.lines() or ["no child"])[0]
        yield judged("WIRE-02", line.endswith(wanted), line)


def _first_lines(lines: list[str]) -> Iterator[Finding]:
    first = lines[0] if lines else "no child"
    wanted = f'{{"action":"initialize","shardId":"{SHARD}","sequenceNumber":"TRIM_HORIZON"'
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
    with kit.start(name, GRACE, script) as run:
        run.wait_for_action("initialize", kit.limits.start_s)
        for number, (item_id, text) in enumerate(answers, 1):
            kit.cloud.put(name, [(b"x", "k")])
            run.wait_for_action("processRecords", kit.limits.step_s, number)
            kit.cloud.put(name, [(b"x", "k")])
            ok = run.wait_for_action("processRecords", kit.limits.step_s, number + 1)
            yield judged(item_id, ok, repr(text[-70:]))
        code = stop(kit, run)
        oops = [line for line in run.stderr.splitlines() if "oops" in line]
        yield judged("LIFE-08", oops, (oops or ["nothing on the daemon's stderr"])[0])
        drained = not kit.is_java or "Drained line for shard" in run.output
        spoke = drained and "leaseLost" in run.actions()
        yield judged("LIFE-07", spoke and code in STOPPED, f"exit {code}, drained: {spoke}")


def a_bare_null(kit: DaemonKit) -> Iterator[Finding]:
    """Java dies of the word null."""
    prepare(kit, "null")
    script: Script = {"processRecords": [[["write", "null\n"], ["status"]], [["status"]]]}
    with kit.start("null", None, script) as run:
        read = run.wait_for_action("processRecords", kit.limits.start_s)
        kit.cloud.put("null", [(b"x", "k")])
        went_on = run.wait_for_action("processRecords", kit.limits.step_s, 2)
        code = run.exit_code(kit.limits.step_s if kit.is_java else 0)
        evidence = "the line was skipped" if went_on else f"exit {code}"
        yield kit.decided(
            "WIRE-18",
            as_java=read and code == 1,
            row="null-line",
            otherwise=went_on,
            evidence=evidence,
        )


def a_legacy_checkpoint(kit: DaemonKit) -> Iterator[Finding]:
    """A request with an unknown field gets no answer."""
    prepare(kit, "legacy")
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


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    a_whole_life,
    noise_between_messages,
    a_bare_null,
    a_legacy_checkpoint,
    a_surplus_status,
    empty_batches,
)
