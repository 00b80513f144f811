"""Which processes of a test are traced by coverage: those that show lines at work.

Tracing makes a process up to three times as slow.
"""

import contextlib
import os
from collections.abc import Iterator

#: What coverage tells the processes that a test starts.
_CONFIG = "COVERAGE_PROCESS_CONFIG"
#: Files whose daemons and children run no line that those of others do not run, too.
UNTRACED = frozenset(
    {
        "test_client_libraries.py",
        "test_daemon_faults.py",
        "test_daemon_output.py",
        "test_daemon_resources.py",
        "test_daemon_stopping.py",
        "test_daemon_trouble.py",
        "test_daemon_watched.py",
        "test_transcripts.py",
        "test_wheel.py",
    }
)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Processes that are started meanwhile are not traced."""
    config = os.environ.pop(_CONFIG, None)
    try:
        yield
    finally:
        if config is not None:
            os.environ[_CONFIG] = config
