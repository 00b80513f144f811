"""How long pyspark goes on asking a server that is gone: seconds instead of more than ten minutes.

A session's own policies are told so by their public attributes, and asked how long they would wait
now. What does not obey is left as pyspark made it, with a warning.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logging.getLogger(__name__)

_LONGEST_MS = 2000
#: Of all waits together; with pyspark's jitter of half a second each.
_PATIENCE_S = 8.0


def retry_shortly(client: Any, retries: int) -> None:
    """Let a session's client retry a few times, two seconds apart at most; raises nothing.

    Args:
        client: of a session; its policies are its own.
        retries: how many; four end after about 3 s: 0.05 + 0.2 + 0.8 + 2 and some jitter.
    """
    try:
        policies = client.get_retry_policies()
        for policy in policies:
            policy.max_retries = retries
            policy.max_backoff = _LONGEST_MS
            policy.max_server_retry_delay = _LONGEST_MS  # ten minutes by default
        waited_s = waits_s(policies, retries)
    except Exception as error:  # noqa: BLE001 - of another pyspark, which goes on without it
        _warn_once(repr(error))
    else:
        if waited_s is None or waited_s > _PATIENCE_S:
            _warn_once(f"they would wait for {waited_s or 'more than so many tries'}")


def waits_s(policies: Iterable[Any], retries: int) -> float | None:
    """How long policies would wait altogether, in s; None = for more tries than they were told."""
    total_ms = 0
    for policy in policies:
        state = policy.to_state()
        for _ in range(retries):
            total_ms += state.next_attempt() or 0
        if state.next_attempt() is not None:
            return None
    return total_ms / 1000


@cache
def _warn_once(why: str) -> None:
    _log.warning(
        "this version of pyspark can't be told to retry for a few seconds only (%s): a server that "
        "is gone may be noticed after ten minutes",
        why,
    )
