"""Dead letters, as the rows of a fleet show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.text import lasted
from kcl_mld.observe.model.verdict import VerdictSeverity
from kcl_mld.observe.rules.scraped import SHOWN_S

if TYPE_CHECKING:
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.observe.model.verdict import Conclusion


def with_letter(one: Conclusion, lease: Lease, now_s: float) -> Conclusion:
    """What is said of a shard, with its last dead letter if it is recent: then it is a warning.

    Args:
        now_s: epoch seconds.
    """
    if not lease.failure.letters_ms:
        return one
    age_s = max(0.0, now_s - lease.failure.letters_ms[-1] / 1000)
    if age_s >= SHOWN_S:
        return one
    cause = f"{one.cause}; its last dead letter is {lasted(age_s)} old"
    if one.severity >= VerdictSeverity.WARNING:
        return replace(one, cause=cause)
    todo = "see kcl-mld dead-letters list: its records were skipped"
    return replace(one, cause=cause, severity=VerdictSeverity.WARNING, todo=todo)
