"""Which tests coverage traces: those that show lines at work.

Tracing makes a test, and the processes that it starts, two to three times as slow.
"""

import contextlib
import functools
import importlib
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kcl_mld
import kcl_mld_protocol

#: What coverage tells the processes that a test starts.
_CONFIG = "COVERAGE_PROCESS_CONFIG"
_TESTS = Path(__file__).parent
#: Files and folders of tests that run no line which others do not run, too: many examples, long
#: lives, simulated fleets, daemons and children in trouble. Single tests of other files have the
#: mark ``untraced``.
#: What a daemon does is shown by test_daemon_life, test_daemon_signals and test_migrating_tables;
#: the kit by test_conform.
UNTRACED = (
    "peer",
    "process/test_client_libraries.py",
    "process/test_daemon_additions.py",
    "process/test_containment_chaos.py",
    "process/test_daemon_children.py",
    "process/test_daemon_containment.py",
    "process/test_daemon_fan_out.py",
    "process/test_daemon_faults.py",
    "process/test_daemon_metrics.py",
    "process/test_daemon_output.py",
    "process/test_daemon_prefork.py",
    "process/test_daemon_refusals.py",
    "process/test_daemon_resources.py",
    "process/test_daemon_schemas.py",
    "process/test_daemon_stopping.py",
    "process/test_daemon_trouble.py",
    "process/test_daemon_watched.py",
    "process/test_discovery.py",
    "process/test_many_streams.py",
    "process/test_pages.py",
    "process/test_shim_choice.py",
    "process/test_upgrade.py",
    "process/test_wheel.py",
    "property",
    "sim",
    "sim_spark",
    "spark/test_chaos.py",
    "spark/test_cluster.py",
    "spark/test_end_to_end.py",
    "spark/test_iceberg_kills.py",
    "unit/children/consuming/test_stuck_children.py",
    "unit/leases/rules/test_taking_exhaustive.py",
    "unit/local/kinesis/test_properties.py",
    "unit/shim/test_beside_kclpy.py",
    "unit/shim/test_stdin_lines.py",
    "unit/shim/test_transcripts.py",
    "unit/spark/sinks/test_jdbc_histories.py",
    "unit/spark/test_histories.py",
)
#: Files of tests that show lines, but in their own process: what they start is not traced. What a
#: Spark host does is shown by test_host_process, what a local server does by local/test_process.
ALONE = (
    "spark/test_host_promises.py",
    "spark/test_host_spark.py",
    "spark/test_launcher.py",
    "spark/test_sample_apps.py",
    "spark/test_sessions.py",
    "unit/local/test_cli.py",
)
#: For a worker of pytest-xdist to write down what it traced. By itself pytest-xdist kills it after
#: ten seconds, which a busy machine may need, and a part of the coverage is lost.
_END_S = 120


@functools.cache
def _is_of(file: Path, places: tuple[str, ...]) -> bool:
    return any(file.is_relative_to(_TESTS / each) for each in places)


def is_traced(item: pytest.Item) -> bool:
    """Whether a test is to be traced, if there is a tracer."""
    return item.get_closest_marker("untraced") is None and not _is_of(item.path, UNTRACED)


@contextlib.contextmanager
def off() -> Iterator[None]:
    """Processes that are started meanwhile are not traced."""
    config = os.environ.pop(_CONFIG, None)
    try:
        yield
    finally:
        if config is not None:
            os.environ[_CONFIG] = config


def pytest_configure() -> None:
    """Let workers of pytest-xdist that trace end in peace."""
    if _CONFIG not in os.environ:
        return
    with contextlib.suppress(ImportError):
        from xdist.workermanage import NodeManager  # noqa: PLC0415 - not everywhere there

        NodeManager.EXIT_TIMEOUT = _END_S


@pytest.fixture(autouse=True)
def tracing_where_it_counts(request: pytest.FixtureRequest) -> Iterator[None]:
    """Processes of a test are traced as it is itself, unless it shows lines alone."""
    item = request.node
    with contextlib.nullcontext() if is_traced(item) and not _is_of(item.path, ALONE) else off():
        yield


def _import_all() -> None:
    """Run the lines that an import runs."""
    for package in (kcl_mld, kcl_mld_protocol):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(".__main__") and ".shim." not in module.name:
                with contextlib.suppress(ImportError):  # of an extra that is not there
                    importlib.import_module(module.name)


@contextlib.contextmanager
def _paused(tracer: Callable[..., object] | None) -> Iterator[None]:
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Import what is traced, then collect without the tracer: most of it is pytest's own work."""
    tracer = sys.gettrace()
    if tracer is None:
        return (yield)
    _import_all()
    with _paused(tracer):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Run the test itself without a tracer if it is not to be traced; fixtures are shared."""
    tracer = None if is_traced(item) else sys.gettrace()
    if tracer is None:
        return (yield)
    with _paused(tracer):
        return (yield)
