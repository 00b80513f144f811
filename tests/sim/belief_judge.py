"""The judge of beliefs: who thinks to hold a lease, and what is sent in that belief (S4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tests.sim.rows import worker_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.sim.children import SimChild
    from tests.sim.court import Court

_ACTION = re.compile(rb'"action" *: *"(\w+)"')
_SETS_CHECKPOINT = re.compile(r"\bcheckpoint = ")


class BeliefJudge:
    """Compares what workers believe with the table, and with what they do."""

    def __init__(self, court: Court) -> None:
        self._court = court
        #: (worker, lease key, what) -> the position or number that it last sent.
        self._sent: dict[tuple[str, str, str], str] = {}

    def tick(self) -> None:
        """Compare beliefs with the table.

        A worker may believe in a lease that the table gives to another until

        * ``failover_s`` after a steal (it may be cut off, and goes by its own clock), and with
          faults off until its next renewal and that one's timeout;
        * not at all after a take of an expired lease;
        * ``failover_s`` after its own release, which comes after the child's end.
        """
        now = self._court.now()
        for worker, keys in self._court.believers().items():
            for key in keys:
                item = self._court.rows.get(key)
                owner = worker_of(item)
                if item is None or owner == worker:
                    continue
                handover = self._court.handovers.get(key)
                if handover is None or handover.old_owner != worker:
                    chain = (
                        handover is not None
                        and now <= handover.at_s + self._court.failover_s * 1.01
                    )
                    if not chain:
                        self._court.convict("S4", f"{worker} believes in {key}, which is {owner}'s")
                elif now > handover.deadline_s:
                    self._court.convict(
                        "S4",
                        f"{worker} believes in {key} {now - handover.at_s:.3f} s after it went "
                        f"to {owner}",
                    )

    def said(self, child: SimChild, data: bytes) -> None:
        """A worker writes to a child: what belongs to the owner needs belief."""
        match = _ACTION.search(data)
        if match is not None and match[1] in {b"processRecords", b"shardEnded"}:
            self._check_belief(child.worker, child.shard_id, match[1].decode())

    def sent(self, worker: str, request: Mapping[str, Any]) -> None:
        """A request to the lease table leaves a worker.

        A checkpoint that was first sent in belief may be sent again without: the repeat has the
        same owner and counter in its condition, so it cannot touch what became another's.
        """
        if _SETS_CHECKPOINT.search(request.get("UpdateExpression", "")):
            position = request["ExpressionAttributeValues"][":checkpoint"]["S"]
            self._sent_first(worker, request, "a checkpoint", position)

    def _sent_first(self, worker: str, request: Mapping[str, Any], what: str, value: str) -> None:
        key = request["Key"]["leaseKey"]["S"]
        if self._sent.get((worker, key, what)) != value:
            self._check_belief(worker, key, what)
            self._sent[worker, key, what] = value

    def _check_belief(self, worker: str, key: str, what: str) -> None:
        if key not in self._court.believers().get(worker, ()):
            self._court.convict(
                "S4", f"{worker} sent {what} for {key}, in which it did not believe"
            )
