"""How long a server that starts is waited for: longer if it is seen to get on.

On a machine with much to do a JVM needs minutes for what takes it seconds elsewhere, and to start
it anew each time would never end. One that hangs uses no time of the processor and prints nothing.
Pure: time is given.
"""

from __future__ import annotations

#: So much time of the processor is progress, in s: an idle JVM needs a minute for it.
_PROGRESS_S = 0.1
#: Progress is not older than this, in s, or a quarter of the limit.
_FRESH_S = 10.0
#: A server that gets on has its time so many times.
MOST_TIMES = 2
#: How often it is looked at, in s.
LOOK_S = 2.0


class StartPatience:
    """Of one start.

    Args:
        limit_s: within which a server answers, or has to be seen to get on, in s, >= 0.
        now: monotonic time in s.
    """

    def __init__(self, limit_s: float, now: float) -> None:
        self._began = self._moved_at = now
        self._limit_s = limit_s
        self._seen = (0.0, 0)

    def left_s(self, now: float, cpu_s: float, lines: int) -> float:
        """How long to wait until the next look, in s; 0 = no longer.

        Args:
            cpu_s: time of the processor that the server has used; 0 where that can't be known.
            lines: that it has printed.
        """
        if cpu_s >= self._seen[0] + _PROGRESS_S or lines != self._seen[1]:
            self._seen = cpu_s, lines
            self._moved_at = now
        waited_s = now - self._began
        if waited_s < self._limit_s:
            return min(LOOK_S, self._limit_s - waited_s)
        still_s = now - self._moved_at
        is_fresh = still_s < min(_FRESH_S, self._limit_s / 4)
        return min(LOOK_S, max(0.0, MOST_TIMES * self._limit_s - waited_s)) if is_fresh else 0.0

    def description(self, now: float) -> str:
        """How long it was waited for, for people: ``240 s, although it got on``."""
        waited_s = now - self._began
        if waited_s < MOST_TIMES * self._limit_s:
            return f"{max(self._limit_s, round(waited_s)):g} s"
        return f"{MOST_TIMES * self._limit_s:g} s, although it was not idle"
