"""``conform child -- CMD…``: play the daemon to a real child and judge it.

Every case starts the command anew, in a session of its own, and ends it whatever happens. Rules
``CHILD-nn`` hold for children in any language. The ``PY`` items describe kclpy itself: how its
library, not the program on it, treats each line. They are judged with ``--implementation kclpy``
when the command runs the kit's own ``kclpy_probe.py``, recognized by its greeting on stderr.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from kcl_mld_protocol import errors
from kcl_mld_protocol.conform.peer import Peer, Peers
from kcl_mld_protocol.conform.report import (
    Finding,
    Report,
    Verdict,
    failed,
    judged,
    load_items,
    not_testable,
    passed,
)
from kcl_mld_protocol.errors import advice_on_1x
from kcl_mld_protocol.jackson import decode_from_child
from kcl_mld_protocol.messages import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    Scalar,
    ShardEnded,
    ShutdownRequested,
    Status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kcl_mld_protocol.conform.peer import Exchange, Peers


SHARD: Final = "shardId-000000000000"
START: Final = Initialize(SHARD, "TRIM_HORIZON", 0)
_FIRST_SEQUENCE: Final = 49680424980729123153819057842337131101470630163041484802
#: Seconds that a child has to end after the end of its stdin (the daemon itself has no limit).
EXIT_S: Final = 5.0
_BIG_BATCH: Final = 10_000
#: What daemons of KCL 1.x sent when a lease was lost.
_SHUTDOWN: Final = b'{"action":"shutdown","reason":"ZOMBIE"}'
_KNOWN_FIELDS: Final = {"action", "sequenceNumber", "subSequenceNumber", "error"}


def records(*payloads: str, key: str = "key") -> ProcessRecords:
    """A batch with these base64 payloads and consecutive sequence numbers."""
    return ProcessRecords(
        tuple(
            Record(data, key, str(_FIRST_SEQUENCE + number), 1_795_252_280_930 + number)
            for number, data in enumerate(payloads)
        ),
        0,
    )


BATCH: Final = records("aGVsbG8=", "d29ybGQ=")


def _answer(item_id: str, exchange: Exchange) -> Iterator[Finding]:
    """The verdict on one answered action, and on what holds for every action."""
    yield judged(item_id, exchange.answered, exchange.evidence())
    yield from _manners(exchange)


def _manners(exchange: Exchange) -> Iterator[Finding]:
    if exchange.answered:
        surplus = exchange.surplus.strip()
        shown = f"wrote {surplus!r:.60} after its status" if surplus else "silent after each status"
        yield judged("CHILD-13", b'"action"' not in surplus, shown)
    glued = [junk.line for junk in exchange.junk if "with a newline" in junk.reason]
    odd = [junk.line for junk in exchange.junk if b'"checkpoint"' in junk.line]
    yield judged("CHILD-14", not glued, f"glued: {glued[0]!r:.60}" if glued else "lines apart")
    if odd:
        yield failed("CHILD-11", f"a request that a daemon skips: {odd[0]!r:.60}")


def _started(peer: Peer) -> bool:
    return peer.send(START).answered


def life_of_a_lease(kit: Peers) -> Iterator[Finding]:
    """From initialize over two batches to the end of stdin."""
    with kit.peer() as peer:
        yield from _answer("CHILD-01", peer.send(START))
        asked: list[CheckpointRequest] = []
        for _ in range(2):
            exchange = peer.send(BATCH)
            asked += exchange.checkpoints
            yield from _answer("CHILD-02", exchange)
        exchange = peer.send(ShutdownRequested())
        asked += exchange.checkpoints
        yield from _answer("CHILD-08", exchange)
        lost = peer.send(LeaseLost(), _refuse(errors.INVALID_STATE))
        yield judged("CHILD-09", lost.answered and not lost.checkpoints, lost.evidence())
        yield from _manners(lost)
        peer.close_stdin()
        code = peer.wait_exit(EXIT_S)
        yield judged("CHILD-15", code == 0, _exit_evidence(code))
        # A second status that came late was taken for a wrong answer to the next action.
        if twice := peer.surplus_statuses():
            yield failed("CHILD-13", f"answered more than once: {', '.join(twice)}")
        yield from _checkpoint_lines(bytes(peer.stdout), asked)


def _exit_evidence(code: int | None) -> str:
    return f"still running after {EXIT_S:g} s" if code is None else f"exit status {code}"


def _checkpoint_lines(stdout: bytes, asked: list[CheckpointRequest]) -> Iterator[Finding]:
    if not asked:
        yield not_testable("CHILD-11", "the child asked for no checkpoint")
        return
    for line in stdout.splitlines():
        if b'"checkpoint"' in line:
            yield judged("CHILD-11", _is_request(line), line.decode("utf-8", "replace"))


def _is_request(line: bytes) -> bool:
    """Whether the line is one JSON object with the known fields, of the known types."""
    try:
        fields = json.loads(line)
    except ValueError:
        return False
    return (
        isinstance(fields, dict)
        and fields.keys() <= _KNOWN_FIELDS
        and isinstance(fields.get("sequenceNumber"), str | None)
        and isinstance(fields.get("subSequenceNumber"), int | None)
    )


def _refuse(error: str) -> Callable[[CheckpointRequest], CheckpointResult]:
    def answer(request: CheckpointRequest) -> CheckpointResult:
        return CheckpointResult(request.sequence_number, request.sub_sequence_number, error)

    return answer


def end_of_a_shard(kit: Peers) -> Iterator[Finding]:
    """The end of a shard wants a checkpoint, of a shard without records too."""
    for item_id, batches in (("CHILD-10", (BATCH,)), ("CHILD-22", ())):
        with kit.peer() as peer:
            if not _started(peer):
                return
            for batch in batches:
                peer.send(batch)
            exchange = peer.send(ShardEnded())
            asked = [request.sequence_number for request in exchange.checkpoints]
            ended = any(number in {None, "SHARD_END"} for number in asked)
            yield judged(item_id, exchange.answered and ended, _asked_at(exchange))
            yield from _manners(exchange)


def _asked_at(exchange: Exchange) -> str:
    asked = ", ".join(str(request.sequence_number) for request in exchange.checkpoints)
    return f"{exchange.evidence()} at {asked or 'nothing'}"


def a_batch_without_records_after_others(kit: Peers) -> Iterator[Finding]:
    """One of several children of a shard gets such a batch while it owes a checkpoint."""
    known = {None, *(record.sequence_number for record in BATCH.records)}
    with kit.peer() as peer:
        if not (_started(peer) and peer.send(BATCH).answered):
            return
        for _ in range(2):
            exchange = peer.send(ProcessRecords((), None))
            asked = {request.sequence_number for request in exchange.checkpoints}
            yield judged("CHILD-21", exchange.answered and asked <= known, _asked_at(exchange))
            yield from _manners(exchange)


def shapes_of_batches(kit: Peers) -> Iterator[Finding]:
    """Batches that are legal and rare."""
    aggregate = tuple(
        Record("c3Vi", f"k{sub}", str(_FIRST_SEQUENCE), 1_795_252_280_930, sub) for sub in range(3)
    )
    cases = (
        ("CHILD-03", ProcessRecords((), None)),
        ("CHILD-05", records("eA==", key='"\\\n\x01\x1f/\x7fé漢😀\u2028')),
        ("CHILD-06", records("", "+/v7")),
        ("CHILD-07", ProcessRecords(aggregate, 5)),
        ("CHILD-04", records(*["eHh4" * 100] * _BIG_BATCH)),
    )
    for item_id, batch in cases:
        with kit.peer() as peer:
            if _started(peer):
                yield from _answer(item_id, peer.send(batch))


def positions_at_the_start(kit: Peers) -> Iterator[Finding]:
    """Every kind of position that initialize may carry."""
    for sequence, sub in (("LATEST", 0), ("AT_TIMESTAMP", 0), (str(_FIRST_SEQUENCE), 3)):
        with kit.peer() as peer:
            yield from _answer("CHILD-17", peer.send(Initialize(SHARD, sequence, sub)))
    extras: dict[str, Scalar] = {
        "streamIdentifier": "123456789012:stream:1",
        "number": 1,
        "flag": None,
    }
    with kit.peer() as peer:
        exchange = peer.send(Initialize(SHARD, "TRIM_HORIZON", 0, extras))
        yield from _answer("CHILD-18", exchange)


def refused_checkpoints(kit: Peers) -> Iterator[Finding]:
    """Errors that a daemon answers with; the child must continue."""
    asked = False
    for error in (errors.SHUTDOWN, errors.ILLEGAL_ARGUMENT):
        for action in (BATCH, ShutdownRequested()):
            with kit.peer() as peer:
                if not _started(peer):
                    return
                exchange = peer.send(action, _refuse(error))
                if exchange.checkpoints:
                    asked = True
                    evidence = f"{error} in {action.action}: {exchange.evidence()}"
                    yield judged("CHILD-12", exchange.answered, evidence)
    if not asked:
        yield not_testable("CHILD-12", "the child asked for no checkpoint")


def ends_of_stdin(kit: Peers) -> Iterator[Finding]:
    """A daemon that dies closes stdin at any time."""
    for item_id, started in (("CHILD-16", True), ("CHILD-19", False)):
        with kit.peer() as peer:
            if started and not _started(peer):
                continue
            peer.close_stdin()
            code = peer.wait_exit(EXIT_S)
            yield judged(item_id, code is not None, _exit_evidence(code))


def the_protocol_of_kcl_1(kit: Peers) -> Iterator[Finding]:
    """A child for the 1.x protocol answers ``shutdown`` where leaseLost and shardEnded end it."""
    with kit.peer() as peer:
        if not _started(peer):
            return
        if peer.send(LeaseLost()).answered:
            yield passed("CHILD-20", "leaseLost is answered")
            return
    with kit.peer() as peer:
        if not _started(peer):
            return
        peer.write_raw(_SHUTDOWN)
        peer.close_stdin()
        peer.wait_exit(EXIT_S)
        messages = [*map(decode_from_child, bytes(peer.stdout).splitlines())]
    if Status("shutdown") in messages:
        yield failed("CHILD-20", advice_on_1x("leaseLost"))
    else:
        yield not_testable("CHILD-20", "neither leaseLost nor shutdown is answered")


CHILD_CASES: Final[tuple[Callable[[Peers], Iterator[Finding]], ...]] = (
    life_of_a_lease,
    end_of_a_shard,
    shapes_of_batches,
    a_batch_without_records_after_others,
    positions_at_the_start,
    refused_checkpoints,
    ends_of_stdin,
    the_protocol_of_kcl_1,
)


_STATUS: Final = b'\n{"action": "status", "responseFor": "initialize"}\n'
_ASK: Final = b'\n{"action": "checkpoint", "sequenceNumber": null, "subSequenceNumber": null}\n'
_GREETING: Final = b"probe: initialize"
_RECORD: Final = (
    b'{"action":"processRecords","records":[{"data":"eA==","partitionKey":"k",'
    b'"sequenceNumber":"1","approximateArrivalTimestamp":%s,"subSequenceNumber":0%s}],'
    b'"millisBehindLatest":0}'
)
#: Lines that kclpy dies of, with the exception that its traceback names.
_DEADLY: Final = (
    ("PY-08", _RECORD % (b"1", b""), b"MalformedAction"),
    ("PY-09", _RECORD % (b"null", b',"action":"record"'), b"TypeError"),
    ("PY-10", b"", b"JSONDecodeError"),
    ("PY-11", _SHUTDOWN, b"TypeError"),
)


def _order(text: str) -> ProcessRecords:
    data = {"raise": "cmFpc2U=", "checkpoint": "Y2hlY2twb2ludA=="}[text]
    return ProcessRecords((Record(data, "k", "1", 1),), 0)


def _stderr(peer: Peer) -> str:
    return peer.stderr.decode("utf-8", "replace")


def bytes_on_the_wire(kit: Peers) -> Iterator[Finding]:
    """The exact bytes of status and checkpoint request, and the clean end."""
    with kit.peer() as peer:
        peer.send(START)
        yield judged("PY-01", bytes(peer.stdout) == _STATUS, repr(bytes(peer.stdout)))
        peer.close_stdin()
        code = peer.wait_exit(EXIT_S)
        yield judged("PY-12", code == 0, f"exit status {code}")


def exceptions_and_checkpoints(kit: Peers) -> Iterator[Finding]:
    """What the program sees and what the daemon sees."""
    with kit.peer() as peer:
        peer.send(START)
        if _GREETING not in peer.stderr:
            for number in (2, 3, 4, 5, 6, 7):
                yield not_testable(f"PY-{number:02d}", "needs the program kclpy_probe.py")
            return
        exchange = peer.send(_order("raise"))
        traced = "ValueError: as ordered" in _stderr(peer)
        yield judged("PY-02", exchange.answered and traced, exchange.evidence())
        before = len(peer.stdout)
        exchange = peer.send(_order("checkpoint"))
        output = bytes(peer.stdout[before:])
        yield judged("PY-03", exchange.answered and output.startswith(_ASK), repr(output))
        peer.send(_order("checkpoint"), _refuse_as_java)
        seen = "CheckpointError value='X' str='X'" in _stderr(peer)
        yield judged("PY-04", seen, _last_line(peer))
    with kit.peer() as peer:
        peer.send(START)
        peer.send(_order("checkpoint"), lambda _: _wrong_answer(peer))
        seen = "CheckpointError value='InvalidStateException'" in _stderr(peer)
        yield judged("PY-05", seen, _last_line(peer))


def _refuse_as_java(request: CheckpointRequest) -> CheckpointResult:
    return CheckpointResult(request.sequence_number, request.sub_sequence_number, "X")


def _wrong_answer(peer: Peer) -> CheckpointResult:
    peer.write_raw(b'{"action":"leaseLost"}')
    return CheckpointResult(None, None)


def _last_line(peer: Peer) -> str:
    return (_stderr(peer).strip().splitlines() or ["nothing on stderr"])[-1]


def older_processors(kit: Peers) -> Iterator[Finding]:
    """The two ends of a lease as processors of versions 1 and 2 see them."""
    for version in ("1", "2"):
        for item_id, action, wanted in (
            ("PY-06", LeaseLost(), ("reason=ZOMBIE", "CheckpointError")),
            ("PY-07", ShardEnded(), ("reason=TERMINATE", "checkpoint stored")),
        ):
            with kit.peer(PROBE_VERSION=version) as peer:
                peer.send(START)
                if _GREETING not in peer.stderr:
                    return
                exchange = peer.send(action)
                ok = exchange.answered and all(text in _stderr(peer) for text in wanted)
                yield judged(item_id, ok, f"version {version}: {_last_line(peer)}")


def deadly_lines(kit: Peers) -> Iterator[Finding]:
    """Lines that end a kclpy process."""
    for item_id, line, exception in _DEADLY:
        with kit.peer() as peer:
            peer.send(START)
            peer.write_raw(line)
            code = peer.wait_exit(EXIT_S)
            if code is None:
                yield failed(item_id, "still running")
            else:
                ok = code != 0 and exception in peer.stderr
                yield judged(item_id, ok, f"exit status {code}: {_last_line(peer)}")


KCLPY_CASES: Final[tuple[Callable[[Peers], Iterator[Finding]], ...]] = (
    bytes_on_the_wire,
    exceptions_and_checkpoints,
    older_processors,
    deadly_lines,
)


Implementation: TypeAlias = Literal["generic", "kclpy"]

#: A day, in seconds; systems can't wait much longer.
MAX_TIMEOUT_S = 86_400.0


class ChildKit:
    """Runs all cases against one command.

    Args:
        implementation: which extra items apply.
        timeout_s: limit for each answer, > 0 and at most :data:`MAX_TIMEOUT_S`.
        environment: added to the environment of every child.
        on_stderr: called, from other threads, with what children write to stderr, as it comes.
    """

    def __init__(
        self,
        command: Sequence[str],
        implementation: Implementation = "generic",
        timeout_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> None:
        self._command = command
        self._implementation = implementation
        self._timeout_s = timeout_s
        self._environment = dict(environment or {})
        self._on_stderr = on_stderr
        self._stderr: list[bytes] = []

    @contextmanager
    def peer(self, **environment: str) -> Iterator[Peer]:
        """A fresh child, gone at the end of the block."""
        everything = self._environment | environment
        peer = Peer(self._command, everything, self._timeout_s, self._on_stderr)
        try:
            yield peer
        finally:
            peer.kill()
            self._stderr.append(bytes(peer.stderr))

    def run(self, progress: Callable[[str], object] = lambda _: None) -> Report:
        """All cases, one after the other.

        Args:
            progress: called with the name of each case before it runs.
        """
        report = Report(item for item in load_items() if item.kit == "child")
        cases: list[Callable[[Peers], Iterator[Finding]]] = [*CHILD_CASES]
        if self._implementation == "kclpy":
            cases += KCLPY_CASES
        else:
            for item in load_items():
                if item.group == "PY":
                    report.add(not_testable(item.id, "describes kclpy only"))
        for case in cases:
            name = case.__name__.replace("_", " ")
            progress(name)
            self._stderr.clear()
            has_failed = False
            for finding in case(self):
                report.add(finding)
                has_failed |= finding.verdict is Verdict.FAIL
            if has_failed:
                for output in self._stderr:
                    report.quote(name, output)
        return report
