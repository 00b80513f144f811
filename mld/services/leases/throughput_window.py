"""How much the holder of a lease received since it last said so in the row."""

from __future__ import annotations

from dataclasses import dataclass

from mld.decide.leases.throughput import throughput_after


@dataclass(frozen=True, slots=True)
class Measured:
    """What a write may say.

    Attributes:
        kbps: KiB/s, the moving average.
        received_bytes: of the window that it is about.
        at: reading of ``Clock.monotonic`` at its end.
    """

    kbps: float
    received_bytes: int
    at: float


class ThroughputWindow:
    """The window of one holding, from one write that said it to the next."""

    def __init__(self, known_kbps: float | None, now: float) -> None:
        """Begin with what the row says.

        Args:
            known_kbps: of the holder before; None = nobody has said it.
            now: reading of ``Clock.monotonic``.
        """
        self._kbps = known_kbps
        self._received_bytes = 0
        self._from = now

    def received(self, size_bytes: int) -> None:
        """So many bytes of payloads went to the child."""
        self._received_bytes += size_bytes

    def measure(self, now: float, least_s: float) -> Measured | None:
        """What can be said now; None = nothing was ever received, or the window is too short.

        Args:
            now: reading of ``Clock.monotonic``.
            least_s: length of the window from which on it is said, > 0.
        """
        elapsed_s = now - self._from
        if elapsed_s < least_s or (self._kbps is None and not self._received_bytes):
            return None
        kbps = throughput_after(self._kbps, self._received_bytes, elapsed_s)
        return Measured(kbps, self._received_bytes, now)

    def stored(self, measured: Measured) -> None:
        """It is in the row: the next window begins where that one ended."""
        self._kbps = measured.kbps
        self._received_bytes -= measured.received_bytes
        self._from = measured.at
