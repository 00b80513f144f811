"""Runs ``python -m MODULE …`` with another wall clock: ``other_clock.py FILE python -m MODULE …``.

``FILE`` has the seconds that are added to the time; it may change while the program runs, and then
the clock jumps. The monotonic clock stays, as when an operator or NTP sets the time. A stand-in for
``libfaketime``, which is seldom there.
"""

from __future__ import annotations

import datetime as dt
import runpy
import sys
import time
from pathlib import Path

OFFSET_FILE = Path(sys.argv[1])
#: How often the file is read.
LOOK_EVERY_S = 0.1

_real_time, _real_gmtime, _real_localtime = time.time, time.gmtime, time.localtime
_looked_at, _offset_s = float("-inf"), 0.0


def offset_s() -> float:
    """What is added now."""
    global _looked_at, _offset_s
    now = time.monotonic()
    if now - _looked_at >= LOOK_EVERY_S:
        _looked_at, _offset_s = now, float(OFFSET_FILE.read_text() or _offset_s)
    return _offset_s


def _time() -> float:
    return _real_time() + offset_s()


class _Datetime(dt.datetime):
    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        return cls.fromtimestamp(_time(), tz)

    @classmethod
    def utcnow(cls) -> dt.datetime:
        return cls.fromtimestamp(_time(), dt.UTC).replace(tzinfo=None)


time.time = _time
time.time_ns = lambda: int(_time() * 1e9)
time.gmtime = lambda at_s=None: _real_gmtime(_time() if at_s is None else at_s)
time.localtime = lambda at_s=None: _real_localtime(_time() if at_s is None else at_s)
dt.datetime = _Datetime  # type: ignore[misc]

_python, _dash_m, module, *arguments = sys.argv[2:]
sys.argv = [module, *arguments]
runpy.run_module(module, run_name="__main__", alter_sys=True)
