"""Requests to the holder of a lease, and whether they are still valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.kernel.model.text import lasted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.leases.model.lease_request import LeaseRequest


def due_request(lease: Lease, now_s: float) -> LeaseRequest | None:
    """The request that the holder of a lease has to carry out now.

    Args:
        lease: as its holder last wrote it.
        now_s: epoch seconds.

    Returns:
        None if there is none or it is void: it expired, it is addressed to another holder, the
        shard is finished, or the lease is being handed over.
    """
    request = lease.request
    is_void = (
        request is None
        or request.expires_s <= now_s
        or request.holder != lease.lease_owner
        or lease.is_handed_over
        or lease.is_finished
    )
    return None if is_void else request


def asked_text(lease: Lease, request: LeaseRequest, now_s: float) -> str:
    """A sentence on a request: who asks whom for what, and for how long it is valid."""
    text = f"{request.holder} is asked to {request.verb} it, by {request.by or 'somebody'}"
    if request.expires_s <= now_s:
        return f"{text}; that is void, its time is over"
    if due_request(lease, now_s) is None:
        return f"{text}; that is void while {lease.actual_owner or 'nobody'} has it"
    return f"{text}, for another {lasted(request.expires_s - now_s)}"


def asked_facts(leases: Iterable[Lease], now_s: float) -> Iterator[str]:
    """A sentence for each request that waits for its holder, or did when it expired."""
    waiting: dict[str, list[Lease]] = {}
    for lease in leases:
        if (request := due_request(lease, now_s)) is not None:
            waiting.setdefault(request.request_id, []).append(lease)
    for asked in waiting.values():
        lease = min(asked, key=lambda one: one.lease_key)
        request = lease.request
        assert request is not None, "it is due"
        more = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
        yield (
            f"{lease.lease_key}{more}: {asked_text(lease, request, now_s)}; kcl-mld leases withdraw "
            "takes it back"
        )
