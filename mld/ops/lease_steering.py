"""Changes leases for operators.

Writes rows that no worker renews, sends requests to other holders.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import AwsError, ConditionFailed, TransactionCanceled, UnknownOutcome
from kcl_mld.leases.model.lease_request import REQUEST, SteerVerb
from kcl_mld.leases.model.steering_writes import (
    creating_at_rest,
    deleting_at_rest,
    requesting,
    withdrawing,
    writing_at_rest,
)
from kcl_mld.ops.rules.steering import SteerWay

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from kcl_mld.aws.ports import DynamoDb
    from kcl_mld.kernel.ports import Clock
    from kcl_mld.leases.lease_store import LeaseStore
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_request import LeaseRequest
    from kcl_mld.ops.rules.steering import SteerStep

#: Seconds between two reads of a row whose holder was asked.
LOOK_S = 0.5
#: Requests for a write that gets no answer.
TRIES = 3
#: Seconds in which a command that ends early withdraws its requests.
SHIELD_S = 3.0
_INTERRUPTED = "the command was interrupted before"


class LeaseSteering:
    """The writes of one command; each is conditional, so that it may be interrupted at any moment.

    However it ends early (:meth:`interrupt`, a cancellation, an error), its pending requests to
    holders are withdrawn; :attr:`asked` holds those that could not be.
    """

    def __init__(self, dynamodb: DynamoDb, store: LeaseStore, clock: Clock) -> None:
        self._dynamodb = dynamodb
        self._store = store
        self._clock = clock
        self._interrupted = asyncio.Event()
        #: By lease key, requests that a holder may still carry out.
        self.asked: dict[str, LeaseRequest] = {}

    def interrupt(self) -> None:
        """Start nothing more, and withdraw requests that holders have not carried out yet."""
        self._interrupted.set()

    async def carry_out(
        self, step: SteerStep, request: LeaseRequest, timeout_s: float
    ) -> str | None:
        """Carry out the planned step for one lease.

        Args:
            step: a write, or a request to the holder.
            request: with a holder where one is to be asked.
            timeout_s: after it, a request that was not carried out is withdrawn.

        Returns:
            Why it was not done; None = it was.

        Raises:
            AwsError: the table could not be read or written.
        """
        if self._interrupted.is_set():
            return _INTERRUPTED
        if request.verb == SteerVerb.WITHDRAW:
            return await self._remove_request(step.lease)
        if request.verb == SteerVerb.DELETE:
            return await self._delete(step.lease)
        if step.way is SteerWay.WRITE:
            return await self._write(step.lease, request)
        return await self._ask(step.lease, request, timeout_s)

    async def carry_out_together(
        self, steps: Sequence[tuple[SteerStep, LeaseRequest]], existing: Container[str], token: str
    ) -> str | None:
        """Write rows that no worker renews, all or none; returns and raises as :meth:`carry_out`.

        Args:
            steps: with one reset each, at most 100.
            existing: keys of the rows that exist.
            token: new for each transaction.
        """
        if self._interrupted.is_set():
            return _INTERRUPTED
        at_s, table = self._clock.corrected(), {"TableName": self._store.table_name}
        actions = []
        for step, request in steps:
            if step.lease.lease_key in existing:
                update = writing_at_rest(step.lease, request, at_s).request
                actions.append({"Update": {**table, **update}})
            else:
                put = creating_at_rest(step.lease, request, at_s)
                actions.append({"Put": {**table, **put}})
        for attempt in range(1, TRIES + 1):
            try:
                await self._dynamodb.transact_write_items(
                    TransactItems=actions, ClientRequestToken=token
                )
            except UnknownOutcome:
                if attempt == TRIES:  # under the same token it is done once
                    raise
            except TransactionCanceled as error:
                blamed = [
                    step.lease.lease_key
                    for (step, _request), reason in zip(steps, error.reasons, strict=False)
                    if reason not in ("None", "")
                ]
                return f"nothing was changed: written meanwhile were {', '.join(blamed) or 'rows'}"
            else:
                break
        return None

    async def _write(self, lease: Lease, request: LeaseRequest) -> str | None:
        write = writing_at_rest(lease, request, self._clock.corrected())
        is_done, row = await self._send(lease, write.request, lambda row: row.has_done(request))
        return None if is_done else _changed(row)

    async def _delete(self, lease: Lease) -> str | None:
        try:
            await self._dynamodb.delete_item(
                TableName=self._store.table_name, **deleting_at_rest(lease)
            )
        except (ConditionFailed, UnknownOutcome):
            row = await self._store.get(lease.lease_key, consistent=True)
            return None if row is None else _changed(row)
        return None

    async def _ask(self, lease: Lease, request: LeaseRequest, timeout_s: float) -> str | None:
        key = lease.lease_key
        asking = requesting(lease, request, self._clock.corrected())
        self.asked[key] = request
        sending = asyncio.get_running_loop().create_task(
            self._send(lease, asking, lambda row: row.request == request or row.has_done(request))
        )
        try:
            why = await self._wait_for_holder(lease, request, timeout_s, sending)
        except BaseException:
            if not self._interrupted.is_set():  # else that was tried
                await self._take_back(lease, request, sending)
            raise
        del self.asked[key]
        return why

    async def _wait_for_holder(
        self,
        lease: Lease,
        request: LeaseRequest,
        timeout_s: float,
        sending: asyncio.Task[tuple[bool, Lease | None]],
    ) -> str | None:
        is_asked, row = await asyncio.shield(sending)
        if not is_asked:
            return _not_asked(row, request)
        ends_at = self._clock.monotonic() + timeout_s
        while self._clock.monotonic() < ends_at and not self._interrupted.is_set():
            row = await self._store.get(lease.lease_key, consistent=True)
            if row is not None and row.has_done(request):
                return None
            if row is None or row.lease_owner != request.holder:
                break
            if row.request != request:
                return f"{request.holder} could not do it, and its log says why"
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._interrupted.wait()
        return await self._withdraw(lease, request)

    async def _take_back(
        self, lease: Lease, request: LeaseRequest, sending: asyncio.Task[Any]
    ) -> None:
        """After an error or a cancellation.

        Withdraw, once a request that is being sent has arrived.
        """
        with suppress(TimeoutError, AwsError):
            async with asyncio.timeout(SHIELD_S):
                with suppress(AwsError):
                    await asyncio.shield(sending)
                await self._withdraw(lease, request)
                del self.asked[lease.lease_key]

    async def _remove_request(self, lease: Lease) -> str | None:
        """Withdraw the request of a command that is gone; only the request that was read."""
        request = lease.request
        if request is None:
            return None

        def is_gone(row: Lease) -> bool:
            return row.request != request and not row.has_done(request)

        taking_back = withdrawing(lease.lease_key, request)
        is_withdrawn, row = await self._send(lease, taking_back, is_gone)
        if is_withdrawn:
            return None
        if row is not None and row.has_done(request):
            return f"{request.holder} has done it meanwhile"
        return _changed(row)

    async def _withdraw(self, lease: Lease, request: LeaseRequest) -> str | None:
        taking_back = withdrawing(lease.lease_key, request)
        is_withdrawn, row = await self._send(lease, taking_back, lambda _row: False)
        if row is not None and row.has_done(request):
            return None
        if is_withdrawn or (row is not None and row.lease_owner == request.holder):
            if self._interrupted.is_set():
                return "the command was interrupted, and the request was withdrawn"
            return f"{request.holder} did not do it in time, so the request was withdrawn"
        return _changed(row)

    async def _send(
        self, lease: Lease, write: Mapping[str, Any], is_done: Callable[[Lease], bool]
    ) -> tuple[bool, Lease | None]:
        """Whether a conditional write has happened; if it was refused, the row, None = gone.

        Args:
            is_done: whether a row shows it: an earlier send may have had no answer.
        """
        for attempt in range(1, TRIES + 1):
            try:
                await self._dynamodb.update_item(TableName=self._store.table_name, **write)
            except ConditionFailed:
                row = await self._store.get(lease.lease_key, consistent=True)
                return row is not None and is_done(row), row
            except UnknownOutcome:
                if attempt == TRIES:
                    raise
            else:
                break
        return True, None


def _not_asked(row: Lease | None, request: LeaseRequest) -> str:
    if row is None or row.lease_owner != request.holder or not row.is_held_by_ours:
        return _changed(row)
    asked = row.request
    if asked is None:
        return f"its attribute {REQUEST} can't be read: remove the attribute from the row"
    return (
        f"another request waits for its holder: {asked.verb} by {asked.by or 'somebody'}; kcl-mld "
        "leases withdraw takes it back"
    )


def _changed(row: Lease | None) -> str:
    if row is None:
        return "its row is gone"
    return f"it was written meanwhile; its owner is {row.actual_owner or 'nobody'} now"
