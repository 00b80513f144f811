"""The items that describe kclpy: how its library, not the program on it, treats each line.

They need the program ``protocol/conform/kclpy_probe.py``, recognized by its greeting on stderr.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.conform.report import Finding, failed, judged, not_testable
from protocol.messages import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    ShardEnded,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.peer import Peer, Peers

_START: Final = Initialize("shardId-000000000000", "TRIM_HORIZON", 0)
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
    ("PY-11", b'{"action":"shutdown","reason":"ZOMBIE"}', b"TypeError"),
)
_EXIT_S: Final = 5.0


def _order(text: str) -> ProcessRecords:
    data = {"raise": "cmFpc2U=", "checkpoint": "Y2hlY2twb2ludA=="}[text]
    return ProcessRecords((Record(data, "k", "1", 1),), 0)


def _said(peer: Peer) -> str:
    return peer.stderr.decode("utf-8", "replace")


def bytes_on_the_wire(kit: Peers) -> Iterator[Finding]:
    """The exact bytes of status and checkpoint request, and the clean end."""
    with kit.peer() as peer:
        peer.tell(_START)
        yield judged("PY-01", bytes(peer.stdout) == _STATUS, repr(bytes(peer.stdout)))
        peer.close_stdin()
        code = peer.wait_exit(_EXIT_S)
        yield judged("PY-12", code == 0, f"exit status {code}")


def exceptions_and_checkpoints(kit: Peers) -> Iterator[Finding]:
    """What the program sees and what the daemon sees."""
    with kit.peer() as peer:
        peer.tell(_START)
        if _GREETING not in peer.stderr:
            for number in (2, 3, 4, 5, 6, 7):
                yield not_testable(f"PY-{number:02d}", "needs the program kclpy_probe.py")
            return
        exchange = peer.tell(_order("raise"))
        traced = "ValueError: as ordered" in _said(peer)
        yield judged("PY-02", exchange.answered and traced, exchange.evidence())
        before = len(peer.stdout)
        exchange = peer.tell(_order("checkpoint"))
        said = bytes(peer.stdout[before:])
        yield judged("PY-03", exchange.answered and said.startswith(_ASK), repr(said))
        peer.tell(_order("checkpoint"), _refuse)
        seen = "CheckpointError value='X' str='X'" in _said(peer)
        yield judged("PY-04", seen, _last_line(peer))
    with kit.peer() as peer:
        peer.tell(_START)
        peer.tell(_order("checkpoint"), lambda _: _wrong_answer(peer))
        seen = "CheckpointError value='InvalidStateException'" in _said(peer)
        yield judged("PY-05", seen, _last_line(peer))


def _refuse(request: CheckpointRequest) -> CheckpointResult:
    return CheckpointResult(request.sequence_number, request.sub_sequence_number, "X")


def _wrong_answer(peer: Peer) -> CheckpointResult:
    peer.write_raw(b'{"action":"leaseLost"}')
    return CheckpointResult(None, None)


def _last_line(peer: Peer) -> str:
    return (_said(peer).strip().splitlines() or ["nothing on stderr"])[-1]


def older_processors(kit: Peers) -> Iterator[Finding]:
    """The two ends of a lease as processors of versions 1 and 2 see them."""
    for version in ("1", "2"):
        for item_id, action, wanted in (
            ("PY-06", LeaseLost(), ("reason=ZOMBIE", "CheckpointError")),
            ("PY-07", ShardEnded(), ("reason=TERMINATE", "checkpoint stored")),
        ):
            with kit.peer(PROBE_VERSION=version) as peer:
                peer.tell(_START)
                if _GREETING not in peer.stderr:
                    return
                exchange = peer.tell(action)
                ok = exchange.answered and all(text in _said(peer) for text in wanted)
                yield judged(item_id, ok, f"version {version}: {_last_line(peer)}")


def deadly_lines(kit: Peers) -> Iterator[Finding]:
    """Lines that end a kclpy process."""
    for item_id, line, exception in _DEADLY:
        with kit.peer() as peer:
            peer.tell(_START)
            peer.write_raw(line)
            code = peer.wait_exit(_EXIT_S)
            if code is None:
                yield failed(item_id, "still running")
            else:
                ok = code != 0 and exception in peer.stderr
                yield judged(item_id, ok, f"exit status {code}: {_last_line(peer)}")


CASES: Final[tuple[Callable[[Peers], Iterator[Finding]], ...]] = (
    bytes_on_the_wire,
    exceptions_and_checkpoints,
    older_processors,
    deadly_lines,
)
