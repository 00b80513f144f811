"""What holds for all tests of a run."""

import os
import signal

import hypothesis
import pytest

from tests.page_commands import summary

# gRPC's handlers start threads in a forked child, where they find their descriptors closed and end
# the process by a signal. The host launches its server before it loads gRPC; a test run does not.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A run in the background of a script (``&``, nohup) ignores SIGINT, and so would all its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine makes no property wrong.
hypothesis.settings.register_profile(
    "whatever the load",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("whatever the load")


def pytest_report_header():
    """How many commands of the pages this run types."""
    return summary()


pytest_plugins = ("tests.leftovers", "tests.tracing", "tests.parts")

#: Fixtures that are dear, so that a machine has one of each: with ``--dist loadgroup`` one worker
#: runs all tests that need it.
SHARED = ("wheel", "spark_server", "sink_server")
#: Tests of Spark that need none of these start servers and fleets of their own, each of them enough
#: to keep a machine busy: one at a time, and one that mostly waits for leases to expire.
SPARK, CHAOS = "servers and fleets of Spark", "Spark under kill -9"
#: Files with tests of half a minute and more. They begin first: at the end of a run one of them
#: would keep one worker busy and leave the others idle.
LONG = (
    "test_chaos.py",
    "test_cluster.py",
    "test_conform.py",
    "test_end_to_end.py",
    "test_pages.py",
)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks; pytest-randomly has been there
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first; give tests that cannot run beside each other a group."""
    items.sort(key=lambda item: item.path.name not in LONG)
    for item in items:
        needed = getattr(item, "fixturenames", ())
        shared = next((name for name in SHARED if name in needed), None)
        if shared or item.get_closest_marker("spark"):
            other = CHAOS if item.path.name == "test_chaos.py" else SPARK
            item.add_marker(pytest.mark.xdist_group(shared or other))


@pytest.fixture
def hangup():
    """SIGHUP has its default action, also where the tests were started by nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
