"""Executing the app in the process that serves shards, if it can be before there is a session.

An app may make columns, windows and UDFs at its top level, as any PySpark program does. They must
be those of Spark Connect although nothing is connected yet. A UDF whose type is a text
(``@udf("double")``) lets Spark read that text: such an app is executed once more with a session.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import sys
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING

from kcl_mld.config.spark.places import missing_packages
from kcl_mld.spark.errors import MissingPart, SparkChildError, SparkConfigError
from kcl_mld.spark.failures import condition, raised
from kcl_mld.spark.former_name import FormerName
from kcl_mld.spark.registration import load_app
from kcl_mld.spark.server.settings import NOT_OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from kcl_mld.spark.config import Facts, SparkConfig
    from kcl_mld.spark.ports import Address
    from kcl_mld.spark.registration import Pipeline

_log = logging.getLogger("mld.spark")

#: pyspark looks at it whenever a column or a UDF is made: classic or Connect.
CONNECT_VARIABLE = "SPARK_CONNECT_MODE_ENABLED"
_NO_SESSION = frozenset({"NO_ACTIVE_OR_DEFAULT_SESSION", "NO_ACTIVE_SESSION"})


def require_packages(config: SparkConfig) -> None:
    """Look whether the Python packages are there that the configuration needs; imports none.

    Raises:
        MissingPart: one isn't.
    """
    for name, advice in missing_packages(config.texts, _has_package):
        raise MissingPart(f"{name} is missing: {advice}")


def _has_package(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


@contextlib.contextmanager
def passing_session(
    config: SparkConfig, facts: Facts, address: Callable[[], Address]
) -> Iterator[None]:
    """A session that is there while an app is executed, and closed afterwards.

    Args:
        address: waits for the server and gives URL and token.

    Raises:
        SparkChildError: the server can't be reached, or refuses us.
    """
    from kcl_mld.spark.server.sessions import ConnectSessions  # noqa: PLC0415 - rarely needed

    url, token = address()
    sessions = ConnectSessions(url, token, config, facts.application)
    sessions.get()
    try:
        yield
    finally:
        sessions.close()


def load(
    path: str, args: Sequence[str], session: Callable[[], AbstractContextManager[object]]
) -> Pipeline:
    """What the app hands over.

    Args:
        session: opens one; only called for an app that can't be executed without.

    Raises:
        SparkConfigError: the app is wrong, or it raised.
        SparkChildError: there is no session to be had.
    """
    if not_ours := sorted(NOT_OURS & os.environ.keys()):
        _log.info("not taken from the environment: %s", ", ".join(not_ours))
    for name in not_ours:
        del os.environ[name]  # spark.master or spark.remote says where Spark is
    os.environ[CONNECT_VARIABLE] = "1"
    _tell_of_watermarks(path)
    if not any(isinstance(finder, FormerName) for finder in sys.meta_path):
        sys.meta_path.append(FormerName())
    try:
        try:
            return load_app(path, args)
        except Exception as error:
            if condition(error) not in _NO_SESSION:
                raise
        _log.info("the app %s needs a session at its top level: it is executed once more", path)
        with session():
            return load_app(path, args)
    except SparkChildError:
        raise
    except Exception as error:
        _log.exception("the app %s failed before run()", path)
        raise SparkConfigError(f"the app {path} failed: {raised(error)}") from error


def _tell_of_watermarks(path: str) -> None:
    """Spark ignores a watermark of a batch in silence; whether the app can be read is checked elsewhere."""
    with contextlib.suppress(OSError, SyntaxError, ValueError):
        if "withWatermark" in _names(compile(Path(path).read_bytes(), path, "exec")):
            _log.warning(
                "the app %s: withWatermark is ignored by Spark: a batch has no watermark, and rows "
                "that come late are in a later batch",
                path,
            )


def _names(code: CodeType) -> set[str]:
    """Names of attributes and globals in a program, functions and classes included."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return set(code.co_names).union(*map(_names, inner))
