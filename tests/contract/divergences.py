"""Where an emulator is known to differ from the service: (target, test) -> how.

Each row is an expected failure of exactly that test on that target.
"""

from __future__ import annotations

KNOWN: dict[tuple[str, str], str] = {}
