"""What its last owner knows of a lease whose row was deleted, and how it is made again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mld.kernel.model.sequence import Sentinel

if TYPE_CHECKING:
    from mld.leases.model.lease import Lease


def creating_command(lease: Lease) -> str | None:
    """The command that makes a row again where its last owner stood; None = nothing was checkpointed.

    Args:
        lease: as its owner last wrote it.
    """
    checkpoint = lease.checkpoint
    if checkpoint is None or checkpoint.sentinel in (Sentinel.LATEST, Sentinel.AT_TIMESTAMP):
        return None
    if checkpoint.sentinel is None:
        # With the sub-sequence number: the record may be one of an aggregate.
        place = (
            f"--after-sequence-number {checkpoint.sequence_number}/{checkpoint.sub_sequence_number}"
        )
    else:
        place = "--to-trim-horizon"
    key = shlex.quote(lease.lease_key)
    return f"kcl-mld leases reset FILE {key} {place} --create --execute"


def told_deleted(lease: Lease) -> str:
    """What its last owner says of it in the log."""
    command = creating_command(lease)
    text = (
        f"The row of lease {lease.lease_key} was deleted; its checkpoint was {lease.checkpoint}. "
    )
    if command is None:
        return (
            f"{text}Nothing was checkpointed: a worker makes it again where the file says that new "
            "leases begin"
        )
    return (
        f"{text}Unless that was meant, make it again before a worker does so within minutes, where the "
        f"file says that new leases begin: {command}"
    )
