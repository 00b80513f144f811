"""The threads that ask for new keys, as tests wait for them."""

import threading
import time

PATIENCE_S = 300.0


def renewals_end() -> None:
    """Wait until nobody asks for new keys."""
    end = time.monotonic() + PATIENCE_S
    while any(thread.name == "credentials" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.01)
