"""What the last owner logs about a lease with a deleted row, and the command to restore it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.sequence import Sentinel

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease import Lease


def creating_command(lease: Lease) -> str | None:
    """The command that creates the row again at its last checkpoint; None = it had none.

    Args:
        lease: as its owner last wrote it.
    """
    checkpoint = lease.checkpoint
    if checkpoint is None or checkpoint.sentinel in (Sentinel.LATEST, Sentinel.AT_TIMESTAMP):
        return None
    if checkpoint.sentinel is None:
        # With the sub-sequence number, because the record may be part of an aggregate.
        place = (
            f"--after-sequence-number {checkpoint.sequence_number}/{checkpoint.sub_sequence_number}"
        )
    else:
        place = "--to-trim-horizon"
    key = shlex.quote(lease.lease_key)
    return f"kcl-mld leases reset FILE {key} {place} --create --execute"


def told_deleted(lease: Lease) -> str:
    """The log sentence of its last owner."""
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
