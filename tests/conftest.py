"""What holds for all tests of a run."""

import os

import pytest

# gRPC's handlers start threads in a forked child, where they find their descriptors closed and end
# the process by a signal. The host launches its server before it loads gRPC; a test run does not.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

pytest_plugins = ("tests.leftovers",)

#: Fixtures that are dear, so that a machine has one of each: with ``--dist loadgroup`` one worker
#: runs all tests that need it.
SHARED = ("spark_server", "sink_server", "cluster", "wheel")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests that need a shared fixture its name as their group."""
    for item in items:
        needed = getattr(item, "fixturenames", ())
        if shared := next((name for name in SHARED if name in needed), None):
            item.add_marker(pytest.mark.xdist_group(shared))
