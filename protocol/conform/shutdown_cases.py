"""Cases for the daemon kit: how a daemon stops."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Final

from protocol.conform.report import Finding, judged
from protocol.conform.steps import GRACE, in_turn, prepare, stop, stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.daemon_run import Script


def stops_without_grace(kit: DaemonKit) -> Iterator[Finding]:
    """The default: Java's children never hear of the stop."""
    for item_id, name, number in (
        ("SHUT-01", "sigterm", signal.SIGTERM),
        ("SHUT-02", "sigint", signal.SIGINT),
    ):
        prepare(kit, name)
        with kit.start(name) as run:
            read = run.wait_for_action("processRecords", kit.limits.start_s)
            code = stop(kit, run, number)
            told = "shutdownRequested" in run.actions()
            yield kit.decided(
                item_id,
                as_java=read and code == 128 + number and not told,
                row="graceful-stop",
                otherwise=code == 0 and told,
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
            evidence=f"exit {code}: {(run.output.strip().splitlines() or [''])[-1]}",
        )


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    stops_without_grace,
    stops_during_a_batch,
    an_unreachable_table,
)
