"""Cases for the daemon kit: checkpoints and the end of shards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from protocol import errors
from protocol.conform.report import Finding, failed, judged
from protocol.conform.steps import GRACE, SHARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.daemon_run import DaemonRun, Script

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
    """Positions inside and outside what was delivered, in one batch."""
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
        told = len(run.results()) > count and lost["error"] == errors.INVALID_STATE
        yield judged("CKPT-11", told, json.dumps(lost))


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


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    many_checkpoints,
    numbers_instead_of_text,
    a_lost_lease,
    a_sick_table,
    ends_of_shards,
    ends_that_are_not_reached,
)
