"""What a test may not leave behind in its process: else the order of tests decides who fails.

A plugin (see ``tests/conftest.py``): a test after which logging, the working directory or the
environment is another one has an error of its own, and what it changed is put back. That holds for
fixtures of a module or a session too, as other modules are tested while those live.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from typing import Any

import pytest

#: Variables that pytest sets between two tests, and pyspark with the first session, for good.
_NOT_OURS = {"PYTEST_CURRENT_TEST", "SPARK_CONNECT_MODE_ENABLED"}
#: Loggers whose state is watched: the root, ours, and those of libraries that we set levels of.
#: Others, pyspark's above all, set theirs up while they are used, for the life of the process.
_WATCHED = ("", "mld", "asyncio", "botocore", "urllib3")
_FRESH = (logging.NOTSET, True, False, (), ())


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of the process that a test must not change.

    Attributes:
        cwd: the working directory; empty = it is gone.
        environ: without what is not ours.
        raises: ``logging.raiseExceptions``.
        disabled: the level up to which logging is off.
        loggers: name -> level, propagate, disabled, handlers, filters; ``""`` is the root.
    """

    cwd: str
    environ: dict[str, str]
    raises: bool
    disabled: int
    loggers: dict[str, tuple[Any, ...]]

    @classmethod
    def take(cls) -> Snapshot:
        """The state as it is now."""
        try:
            cwd = os.getcwd()
        except FileNotFoundError:
            cwd = ""
        environ = {name: text for name, text in os.environ.items() if name not in _NOT_OURS}
        loggers = {name: _state(logger) for name, logger in _loggers().items()}
        disabled = logging.root.manager.disable
        return cls(cwd, environ, logging.raiseExceptions, disabled, loggers)

    def differences(self, later: Snapshot) -> list[str]:
        """What is another one, in words; empty = nothing.

        A logger that is new counts if it is ours: libraries set theirs up when they are imported.
        """
        found = []
        if self.cwd != later.cwd:
            found.append(f"the working directory is {later.cwd or 'gone'}, was {self.cwd}")
        changed = (name for name, _ in self.environ.items() ^ later.environ.items())
        found += [f"the variable {name} is changed" for name in sorted(set(changed))]
        if self.raises != later.raises:
            found.append(f"logging.raiseExceptions is {later.raises}")
        if self.disabled != later.disabled:
            found.append(f"logging.disable({later.disabled})")
        for name, state in sorted(later.loggers.items()):
            before = self.loggers.get(name, _FRESH if name.startswith("mld") else state)
            if before != state:
                found.append(f"the logger {name or 'root'} is {state}, was {before}")
        return found

    def restore(self) -> None:
        """Make the state this one again."""
        if self.cwd:
            os.chdir(self.cwd)
        for name in os.environ.keys() - self.environ.keys() - _NOT_OURS:
            del os.environ[name]
        os.environ.update(self.environ)
        self.restore_logging()

    def restore_logging(self) -> None:
        """Only what is logging's."""
        logging.raiseExceptions = self.raises
        logging.disable(self.disabled)
        for name, logger in _loggers().items():
            level, logger.propagate, logger.disabled, handlers, filters = self.loggers.get(
                name, _FRESH
            )
            logger.setLevel(level)
            others = [each for each in logger.handlers if not _counts(each)]
            logger.handlers[:], logger.filters[:] = [*others, *handlers], filters


def _loggers() -> dict[str, logging.Logger]:
    known = {"": logging.root, **logging.root.manager.loggerDict}
    return {
        name: each
        for name, each in known.items()
        if isinstance(each, logging.Logger) and name.partition(".")[0] in _WATCHED
    }


def _state(logger: logging.Logger) -> tuple[Any, ...]:
    handlers = tuple(each for each in logger.handlers if _counts(each))
    return (logger.level, logger.propagate, logger.disabled, handlers, tuple(logger.filters))


def _counts(handler: logging.Handler) -> bool:
    """False for pytest's own, which come and go in each phase, and for those that do nothing.

    A library adds one that does nothing when it is imported, perhaps by a test.
    """
    return not isinstance(handler, logging.NullHandler) and not _is_of_pytest(handler)


def _is_of_pytest(handler: logging.Handler) -> bool:
    return type(handler).__module__ == "_pytest.logging"


_BEFORE = pytest.StashKey[Snapshot]()


def _keep_pytests_formatters() -> None:
    """Let every logger propagate that gives its handlers a formatter of its own.

    Pytest hands its handlers to each logger that does not propagate. Pyspark has such loggers, and
    they would make these handlers write JSON from then on: ``record.message`` is set no more.
    """
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and not logger.propagate:
            logger.propagate = type(logger).addHandler is not logging.Logger.addHandler


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item):
    """Remember how the test found the process."""
    _keep_pytests_formatters()
    item.stash[_BEFORE] = Snapshot.take()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call():
    """Before pytest's own handlers are there."""
    _keep_pytests_formatters()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item):
    """See that it left the process as it was."""
    _keep_pytests_formatters()
    result = yield
    before, after = item.stash[_BEFORE], Snapshot.take()
    if left := before.differences(after):
        before.restore()
        pytest.fail("this test leaves behind: " + "; ".join(left), pytrace=False)
    return result


@pytest.fixture
def restored_logging():
    """For tests that set up logging: afterwards it is as before."""
    before = Snapshot.take()
    yield
    before.restore_logging()
