"""All workers of a mixed fleet stop at once: no lease keeps an owner of ours that is gone."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.peer import fetched
from tests.peer.fleet import COMPATIBLE, NATIVE, PATIENCE_S

if TYPE_CHECKING:
    from tests.peer.fleet import Fleet, Worker

SHARDS = 8
STARTERS = {
    "java-3.1.3": lambda fleet, name, **more: fleet.multilang(name, "3.1.3", **more),
    "java-2.5.4": lambda fleet, name, **more: fleet.multilang(name, "2.5.4", **more),
    "older": lambda fleet, name, **more: fleet.older(name, **more),
}


def fetch(kind: str) -> None:
    try:
        if kind == "older":
            fetched.older()
        else:
            fetched.multilang(kind.removeprefix("java-"))
    except fetched.Unavailable as error:
        pytest.skip(f"{kind}: {error}")


def named(fleet: Fleet) -> dict[str, set[str]]:
    """Lease key -> the workers that its row names as owners, now and before a hand-off."""
    return {
        key: {row[name]["S"] for name in ("leaseOwner", "checkpointOwner") if name in row}
        for key, row in fleet.rows().items()
    }


def stop_at_once(fleet: Fleet, workers: list[Worker]) -> None:
    for worker in workers:
        worker.signal(signal.SIGTERM)
    for worker in workers:
        code = worker.exit_code(PATIENCE_S)
        assert code in (0, 143), f"{worker.name} ended with {code}: {worker.output[-3000:]}"
    fleet.note("all have stopped")


@pytest.mark.peer
@pytest.mark.parametrize(
    ("kind", "client_version"),
    [("java-3.1.3", NATIVE), ("older", NATIVE), ("older", COMPATIBLE), ("java-2.5.4", COMPATIBLE)],
)
def test_all_stop_at_once(new_fleet, kind, client_version):
    fetch(kind)
    fleet = new_fleet({"orders": SHARDS}, client_version)
    first = STARTERS[kind](fleet, "theirs")
    fleet.until_it_holds(first, SHARDS)
    ours = [fleet.ours(f"ours-{number}") for number in (1, 2)]
    for worker in ours:
        fleet.until_it_holds(worker, 1)
    fleet.until_all_is_read()
    before = fleet.owned(first)
    stop_at_once(fleet, [*ours, first])
    after = named(fleet)
    left = {key: owners for key, owners in after.items() if owners & {one.name for one in ours}}
    given = [key for key, owners in after.items() if first.name in owners and key not in before]
    kept = [key for key, owners in after.items() if first.name in owners]
    fleet.note(f"named after the stop: ours {len(left)}, theirs {len(kept)}, new {len(given)}")
    began_s = time.monotonic()
    last = fleet.ours("ours-3")
    fleet.until_it_holds(last, SHARDS - len(kept))
    fleet.note(f"what nobody owned is read after {time.monotonic() - began_s:.1f} s")
    fleet.until_all_is_owned_by(last)
    fleet.note(f"all is owned after {time.monotonic() - began_s:.1f} s")
    verdict = fleet.verdict()
    assert left == {}
    assert verdict.faults == []
