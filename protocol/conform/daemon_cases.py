"""Cases for the daemon kit: the wire, the life of children, stops and checkpoints; ``ALL`` cases."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Final

from kcl_mld_protocol import errors
from kcl_mld_protocol.conform import startup_cases
from kcl_mld_protocol.conform.report import Finding, failed, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kcl_mld_protocol.conform.daemon import DaemonKit, DaemonRun, Script

SHARD: Final = "shardId-000000000000"
GRACE: Final[dict[str, str | None]] = {"shutdownGraceMillis": "20000"}
#: The exit codes of a graceful stop: Java dies of the signal, kcl-mld ends with 0.
STOPPED: Final = (143, 0)


def prepare(kit: DaemonKit, name: str, shards: int = 1) -> None:
    """A stream with one record in it."""
    kit.cloud.create_stream(name, shards)
    kit.cloud.put(name, [(b"hi", "pk")])


def stop(kit: DaemonKit, run: DaemonRun, number: signal.Signals = signal.SIGTERM) -> int | None:
    """Ask the daemon to stop; its exit code, None if it does not end in time."""
    run.signal(number)
    return run.exit_code(kit.limits.step_s)


def stopped(kit: DaemonKit, item_id: str, code: int | None, ok: object, evidence: str) -> Finding:
    """The verdict on a graceful stop with everything else in order."""
    return kit.decided(
        item_id,
        as_java=ok and code == STOPPED[0],
        row="graceful-stop",
        otherwise=ok and code == STOPPED[1],
        evidence=f"exit {code}: {evidence}",
    )


def in_turn(run: DaemonRun) -> bool:
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
    """The child is called without records if the file requests it; empty data is an empty string."""
    kit.cloud.create_stream("empty", 1)
    changes: dict[str, str | None] = {"callProcessRecordsEvenForEmptyRecordList": "true"}
    pattern = r'\{"action":"processRecords","records":\[\],"millisBehindLatest":(null|\d+)\}'
    with kit.start("empty", changes) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        line = next((x for x in run.lines() if '"processRecords"' in x), "no batch")
        yield judged("WIRE-04", re.fullmatch(pattern, line), line)


WIRE_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    a_whole_life,
    noise_between_messages,
    a_bare_null,
    a_legacy_checkpoint,
    a_surplus_status,
    empty_batches,
)


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
            seen = run.wait_for_action("processRecords", kit.limits.start_s)
            code = run.exit_code(kit.limits.step_s)
            seen = seen and (not kit.is_java or text in run.output)
            yield judged(item_id, code == 1 and seen, f"exit {code}: {run.last_line()}")


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
            seen = text in run.output if kit.is_java else command.split()[0] in run.output
            yield kit.decided(
                item_id,
                as_java=code == 1 and seen,
                row="late-errors",
                otherwise=code == 2 and seen,
                evidence=f"exit {code}: {run.last_line()}",
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
            seen = "leaseLost" in run.actions()
            failed = "shutdownRequested" in run.actions() and code not in {0, None}
            ok = seen if item_id == "LIFE-11" else failed
            actions = " ".join(run.actions())
            yield judged(item_id, ok, f"exit {code}: {actions}")


def silent_children(kit: DaemonKit) -> Iterator[Finding]:
    """The limit for answers, and a limit of nothing."""
    prepare(kit, "silent")
    slow: Script = {"processRecords": [[["sleep", 60]]]}
    with kit.start("silent", {"timeoutInSeconds": "1"}, slow) as run:
        seen = run.wait_for_action("processRecords", kit.limits.start_s)
        code = run.exit_code(kit.limits.step_s)
        yield judged("LIFE-14", seen and code == 1, f"exit {code}, batch delivered: {seen}")
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


LIFE_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    failures_of_a_child,
    programs_that_do_not_start,
    two_shards,
    failures_at_the_shutdown_notice,
    silent_children,
    a_child_that_lingers,
    one_thread,
)


def stops_without_grace(kit: DaemonKit) -> Iterator[Finding]:
    """The default: Java's children are not notified of the stop."""
    for item_id, name, number in (
        ("SHUT-01", "sigterm", signal.SIGTERM),
        ("SHUT-02", "sigint", signal.SIGINT),
    ):
        prepare(kit, name)
        with kit.start(name) as run:
            read = run.wait_for_action("processRecords", kit.limits.start_s)
            code = stop(kit, run, number)
            seen = "shutdownRequested" in run.actions()
            yield kit.decided(
                item_id,
                as_java=read and code == 128 + number and not seen,
                row="graceful-stop",
                otherwise=code == 0 and seen,
                evidence=f"exit {code}: {' '.join(run.actions())}",
            )


def stops_during_a_batch(kit: DaemonKit) -> Iterator[Finding]:
    """A batch in hand is finished first, if the grace allows."""
    prepare(kit, "busy")
    slow: Script = {"processRecords": [[["sleep", 2], ["status"]]]}
    with kit.start("busy", GRACE, slow) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        code = stop(kit, run)
        ok = in_turn(run) and "shutdownRequested" in run.actions()
        yield stopped(kit, "SHUT-04", code, ok, " ".join(run.actions()))
    prepare(kit, "tooshort")
    slower: Script = {"processRecords": [[["sleep", 15], ["status"]]]}
    with kit.start("tooshort", {"shutdownGraceMillis": "1000"}, slower) as run:
        read = run.wait_for_action("processRecords", kit.limits.start_s)
        code = stop(kit, run)
        yield judged("SHUT-05", read and code == 143, f"exit {code}")


def an_unreachable_table(kit: DaemonKit) -> Iterator[Finding]:
    """Java gives up after 20 attempts and reports success."""
    kit.cloud.create_stream("nodynamo", 1)
    changes: dict[str, str | None] = {"dynamoDBEndpoint": "http://127.0.0.1:9"}
    with kit.start("nodynamo", changes) as run:
        code = run.exit_code(kit.limits.give_up_s)
        yield kit.decided(
            "SHUT-06",
            as_java=code == 0 and "Unable to initialize after 20 attempts" in run.output,
            row="init-failure",
            otherwise=code == 1 and "127.0.0.1:9" in run.output,
            evidence=f"exit {code}: {run.last_line()}",
        )


SHUTDOWN_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    stops_without_grace,
    stops_during_a_batch,
    an_unreachable_table,
)


_ILLEGAL: Final = errors.ILLEGAL_ARGUMENT
#: item, position, sub-sequence number, expected error; played in this order in one batch of three
#: records, of which the largest is $last.
_POSITIONS: Final[tuple[tuple[str, str | None, int | None, str | None], ...]] = (
    ("CKPT-02", "$first", None, None),
    ("CKPT-03", "$first", None, None),
    ("CKPT-04", "1", None, _ILLEGAL),
    ("CKPT-05", "$above", None, _ILLEGAL),
    ("CKPT-06", "$last", -1, _ILLEGAL),
    ("CKPT-07", "abc", None, _ILLEGAL),
    ("CKPT-07", "", None, _ILLEGAL),
    ("CKPT-08", "SHARD_END", None, _ILLEGAL),
    ("CKPT-01", None, None, None),
)


def many_checkpoints(kit: DaemonKit) -> Iterator[Finding]:
    """Positions inside and outside the delivered records, in one batch."""
    name = "ckpt"
    kit.cloud.create_stream(name, 1)
    kit.cloud.put(name, [(b"a", "k"), (b"b", "k"), (b"c", "k")])
    steps: list[Sequence[object]] = [["checkpoint", where, sub] for _, where, sub, _ in _POSITIONS]
    script: Script = {
        "initialize": [[["checkpoint", "1", None], ["status"]]],
        "processRecords": [[*steps, ["status"]], [["status"]]],
        "leaseLost": [[["checkpoint", None, None], ["status"]]],
    }
    with kit.start(name, GRACE, script) as run:
        count = len(_POSITIONS) + 1
        run.wait_for(lambda found: len(found.results()) >= count, kit.limits.start_s)
        rows = kit.cloud.lease_rows(name)
        results = run.results()
        if len(results) < count:
            yield failed("CKPT-21", f"{len(results)} of {count} answers")
            return
        refused = results[0]
        yield judged("CKPT-10", refused["error"] == errors.INVALID_STATE, json.dumps(refused))
        for (item_id, where, sub, error), result in zip(_POSITIONS, results[1:], strict=False):
            echoed = result["subSequenceNumber"] == sub
            if where is None or not where.startswith("$"):
                echoed = echoed and result["sequenceNumber"] == where
            yield judged(item_id, echoed and result["error"] == error, json.dumps(result))
        yield judged("CKPT-21", _alternate(run), f"{len(results)} requests answered in order")
        last = json.loads(next(line for line in run.lines() if '"processRecords"' in line))
        wanted = last["records"][-1]["sequenceNumber"]
        stored = rows and rows[0]["checkpoint"] == wanted
        yield judged("CKPT-01", stored, f"stored {rows[0].get('checkpoint') if rows else None}")
        run.terminate_and_wait(kit.limits.step_s)
        lost = run.results()[-1]
        seen = len(run.results()) > count and lost["error"] == errors.INVALID_STATE
        yield judged("CKPT-11", seen, json.dumps(lost))


def _alternate(run: DaemonRun) -> bool:
    """Whether every request was followed by its answer."""
    asked = False
    for entry in run.children()[0]:
        text = str(entry.what)
        if entry.direction == "out":
            if asked:
                return False
            asked = '"checkpoint"' in text
        elif entry.direction == "in":
            asked = asked and not text.startswith('{"action":"checkpoint"')
    return True


def numbers_instead_of_text(kit: DaemonKit) -> Iterator[Finding]:
    """A sequence number written as a number comes back as text."""
    name = "ckptnumber"
    kit.cloud.create_stream(name, 1)
    kit.cloud.put(name, [(b"a", "k")])
    request = '{"action":"checkpoint","sequenceNumber":160,"subSequenceNumber":2}\n'
    script: Script = {
        "processRecords": [[["write", request], ["silence", 10], ["status"]], [["status"]]]
    }
    with kit.start(name, None, script) as run:
        run.wait_for(lambda found: found.results(), kit.limits.start_s)
        result = (run.results() or [{}])[0]
        ok = result.get("sequenceNumber") == "160" and result.get("subSequenceNumber") == 2
        yield judged("CKPT-09", ok, f"{json.dumps(result)} (160 itself is not in range here)")


def a_lost_lease(kit: DaemonKit) -> Iterator[Finding]:
    """Another worker has taken the lease while the child works."""
    name = "ckptlost"
    kit.cloud.create_stream(name, 1)
    kit.cloud.put(name, [(b"a", "k")])
    script: Script = {"processRecords": [[["gate"], ["checkpoint", None, None], ["status"]]]}
    with kit.start(name, None, script) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        kit.cloud.change_lease(
            name, SHARD, {"leaseOwner": "another-worker", "leaseCounter": 1_000_000}
        )
        run.open_gate()
        run.wait_for(lambda found: found.results(), kit.limits.step_s)
        result = (run.results() or [{}])[0]
        yield judged("CKPT-12", result.get("error") == errors.SHUTDOWN, json.dumps(result))


def a_sick_table(kit: DaemonKit) -> Iterator[Finding]:
    """What DynamoDB's errors become."""
    for item_id, code, wanted in (
        ("CKPT-13", "ProvisionedThroughputExceededException", errors.THROTTLING),
        ("CKPT-14", "ItemCollectionSizeLimitExceededException", errors.DEPENDENCY),
        ("CKPT-15", "ResourceNotFoundException", errors.INVALID_STATE),
    ):
        name = item_id.lower()
        kit.cloud.create_stream(name, 1)
        kit.cloud.put(name, [(b"a", "k")])
        ask: Sequence[Sequence[object]] = [["gate"], ["checkpoint", None, None], ["status"]]
        script: Script = {"processRecords": [ask]}
        with kit.start(name, None, script) as run:
            run.wait_for_action("processRecords", kit.limits.start_s)
            kit.cloud.fail("UpdateItem", name, code)
            run.open_gate()
            try:
                run.wait_for(lambda found: found.results(), kit.limits.step_s)
            finally:
                kit.cloud.heal()
            result = (run.results() or [{}])[0]
            evidence = f"{code}: {json.dumps(result)}"
            yield judged(item_id, result.get("error") == wanted, evidence)


def _ended(
    kit: DaemonKit,
    name: str,
    ending: Sequence[Sequence[object]],
    batch: Sequence[Sequence[object]] | None = None,
) -> tuple[list[str], str]:
    """Run a shard to its end; the actions seen and the parent's checkpoint afterwards."""
    kit.cloud.create_stream(name, 1)
    kit.cloud.put(name, [(b"a", "k"), (b"b", "k")])
    script: Script = {
        "shardEnded": [ending],
        "processRecords": [batch or [["status"]]],
    }
    with kit.start(name, None, script) as run:
        run.wait_for_action("processRecords", kit.limits.start_s)
        kit.cloud.split(name, SHARD)
        run.wait_for_action("shardEnded", kit.limits.start_s)
        run.wait_for_action("initialize", kit.limits.step_s / 2, 3)
        rows = {str(row["leaseKey"]): row for row in kit.cloud.lease_rows(name)}
        checkpoint = str(rows.get(SHARD, {}).get("checkpoint", "deleted"))
        return run.actions(), checkpoint


def ends_of_shards(kit: DaemonKit) -> Iterator[Finding]:
    """Each way to checkpoint the end, and none."""
    for item_id, position in (("CKPT-16", None), ("CKPT-17", "$last"), ("CKPT-19", "SHARD_END")):
        ending: Sequence[Sequence[object]] = [["checkpoint", position, None], ["status"]]
        actions, checkpoint = _ended(kit, item_id.lower(), ending)
        children = actions.count("initialize") - 1
        ok = checkpoint in {"SHARD_END", "deleted"} and children == 2
        yield judged(item_id, ok, f"checkpoint {checkpoint}, {children} child shards started")
        yield judged("WIRE-10", "shardEnded" in actions, "shardEnded was sent")


def ends_that_are_not_reached(kit: DaemonKit) -> Iterator[Finding]:
    """The explicit position that is already stored, and no checkpoint at all."""
    again: Sequence[Sequence[object]] = [["checkpoint", "$last", None], ["status"]]
    none: Sequence[Sequence[object]] = [["status"]]
    for item_id, ending, batch, row in (
        ("CKPT-18", again, again, "shard-end-repeat"),
        ("CKPT-20", none, None, "shard-end-forgotten"),
    ):
        actions, checkpoint = _ended(kit, item_id.lower(), ending, batch)
        children = actions.count("initialize") - 1
        stuck = (
            "shardEnded" in actions and checkpoint not in {"SHARD_END", "deleted"} and children == 0
        )
        yield kit.decided(
            item_id,
            as_java=stuck,
            row=row,
            otherwise="shardEnded" in actions and not stuck,
            evidence=f"checkpoint {checkpoint}, {children} child shards or repeats started",
        )


CHECKPOINT_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    many_checkpoints,
    numbers_instead_of_text,
    a_lost_lease,
    a_sick_table,
    ends_of_shards,
    ends_that_are_not_reached,
)


ALL: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    *startup_cases.CLI_CASES,
    *startup_cases.REFUSAL_CASES,
    *startup_cases.SYNTAX_CASES,
    *startup_cases.CONFIG_CASES,
    *startup_cases.CREDENTIAL_CASES,
    *WIRE_CASES,
    *LIFE_CASES,
    *SHUTDOWN_CASES,
    *CHECKPOINT_CASES,
)
