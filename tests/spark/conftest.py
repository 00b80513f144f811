"""One Spark server and one session for all tests that need a real one."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import pytest

from kcl_mld.spark.config import SparkConfig, read_properties
from kcl_mld.spark.server.launcher import EmbeddedServer
from kcl_mld.spark.server.sessions import ConnectSessions
from tests.spark.small_server import SMALL_SERVER

if TYPE_CHECKING:
    from pathlib import Path


def spark_config(**more: str) -> SparkConfig:
    """A small server's configuration; ``more`` has keys with ``__`` for a dot, without ``spark``.

    ``spark_config(sink="delta", conf__spark__ui__enabled="true")``
    """
    properties = {
        **SMALL_SERVER,
        "spark.master": "local[2]",
        **{"spark." + name.replace("__", "."): text for name, text in more.items()},
    }
    return read_properties(properties)


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory):
    """A running ``EmbeddedServer``: ``url``, ``token``, ``pid``; shared, so don't stop it."""
    directory: Path = tmp_path_factory.mktemp("server")
    server = EmbeddedServer.launch(spark_config(), directory, os.environ)
    try:
        server.wait_ready(180)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def spark_sessions(spark_server):
    """``ConnectSessions`` with the shared server."""
    sessions = ConnectSessions(spark_server.url, spark_server.token, spark_config(), "tests")
    yield sessions
    sessions.close()


@pytest.fixture(scope="session")
def spark(spark_sessions):
    """A session with the shared server."""
    return spark_sessions.get()


@pytest.fixture(scope="session")
def sink_server(tmp_path_factory):
    """Another server, with the jars of Delta and Avro, and its configuration."""
    from tests.spark.sink_server import running_server  # noqa: PLC0415 - imports pyspark

    with running_server(tmp_path_factory.mktemp("sinks")) as running:
        yield running


@pytest.fixture(scope="session")
def sink_session(sink_server):
    """A session with it."""
    from tests.spark.sink_server import open_sessions  # noqa: PLC0415 - imports pyspark

    with open_sessions(*sink_server) as sessions:
        yield sessions.get()


@pytest.fixture
def retries_may_run_out():
    """For tests in which a server dies: pyspark warns then, and warnings are errors here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*RETRIES_EXCEEDED")
        yield
