"""What several cases of the daemon kit do alike."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from protocol.conform.daemon import DaemonKit
    from protocol.conform.daemon_run import DaemonRun
    from protocol.conform.report import Finding

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
