"""How much a lease carries: an average of what its holder received between two renewals.

The leader of a 3.x fleet reads it from the lease row (``throughputKBps``).
"""

from __future__ import annotations

#: A window of so many seconds weighs half. Source: LeaseRenewer of 10000 ms failover time renews
#: every 3308 ms, with alpha 0.5 (LeaseStatsRecorder, ExponentialMovingAverage, 3.5.1).
HALF_WINDOW_S = 3.308


def throughput_after(known_kbps: float | None, received_bytes: int, elapsed_s: float) -> float:
    """The average after one more window.

    Args:
        known_kbps: KiB/s before; None = this is the first window. A new holder begins with what
            the row says (Java divides it by 3.3 once).
        received_bytes: payloads in the window, after de-aggregation.
        elapsed_s: length of the window, > 0. Java's windows are all equal; ours are as long as
            the pause between renewals, so a longer one weighs as much as Java's in that time.

    Returns:
        KiB/s, not rounded.
    """
    rate = received_bytes / 1024 / elapsed_s
    if known_kbps is None:
        return rate
    kept: float = 0.5 ** (elapsed_s / HALF_WINDOW_S)
    return kept * known_kbps + (1 - kept) * rate
