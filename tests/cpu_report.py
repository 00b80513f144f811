"""What each test costs in CPU time: ``python -m pytest -p tests.cpu_report [paths]``, or in a whole run.

A plugin that adds a table to the end of a run, also of one on many workers: the dearest tests and
files, in seconds of the test's own process and of its children. A child counts where it is waited
for: a server that many tests share, in the teardown of the last of them; one that outlives its
parent, nowhere. What a fixture of a module or a session costs is in the setup of its first test.
"""

import resource
from collections import Counter, defaultdict

import pytest

_SHOWN = 40
#: Name of a property of a test's report: phase, own CPU and that of its children in seconds.
_COST = "cpu_s"


def _used_s() -> tuple[float, float]:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def _measured(item: pytest.Item, phase: str):
    own, children = _used_s()
    try:
        return (yield)
    finally:
        own_now, children_now = _used_s()
        item.user_properties.append((_COST, (phase, own_now - own, children_now - children)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item):
    """Measure the fixtures."""
    return (yield from _measured(item, "setup"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item):
    """Measure the test."""
    return (yield from _measured(item, "call"))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item):
    """Measure what ends with it."""
    return (yield from _measured(item, "teardown"))


def pytest_terminal_summary(terminalreporter):
    """Print the tables."""
    tests: dict[str, dict[str, tuple[float, float]]] = defaultdict(dict)
    wall_s: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if not isinstance(report, pytest.TestReport):
                continue
            wall_s[report.nodeid] += report.duration
            for name, cost in report.user_properties:
                if name == _COST:
                    phase, *seconds = cost
                    tests[report.nodeid][phase] = tuple(seconds)
    own: Counter[str] = Counter()
    children: Counter[str] = Counter()
    for test, phases in tests.items():
        own[test] = sum(seconds[0] for seconds in phases.values())
        children[test] = sum(seconds[1] for seconds in phases.values())
    _print_table(terminalreporter, "tests", own, children, wall_s)
    _print_table(terminalreporter, "files", *map(_by_file, (own, children, wall_s)))
    total, of_children = own.total(), children.total()
    terminalreporter.write_line(f"CPU of all: {total:.0f} s, and {of_children:.0f} s of children")


def _by_file(seconds: Counter[str]) -> Counter[str]:
    files: Counter[str] = Counter()
    for test, each in seconds.items():
        files[test.partition("::")[0]] += each
    return files


def _print_table(reporter, what: str, own, children, wall_s) -> None:
    reporter.section(f"dearest {what}: CPU, of that children, wall (s)")
    for name, _ in (own + children).most_common(_SHOWN):
        line = (
            f"{own[name] + children[name]:8.2f} {children[name]:8.2f} {wall_s[name]:8.2f}  {name}"
        )
        reporter.write_line(line)
