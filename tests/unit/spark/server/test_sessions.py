"""Addresses and tokens of Spark Connect servers; what needs a server is in ``tests/spark``."""

from __future__ import annotations

import socket
from types import SimpleNamespace

import pytest
from pyspark.sql.connect.client import SparkConnectClient

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import SparkConfigError, SparkUnreachable
from kcl_mld.spark.server import sessions
from kcl_mld.spark.server.sessions import (
    ConnectSessions,
    complete_url,
    connect_address,
    remote_token,
)

_CONFIG = read_properties({"spark.remote": "sc://cluster", "spark.remote.token.env": "TOKEN"})


def test_the_token_is_read_from_the_variable_that_is_named():
    assert remote_token(_CONFIG, {"TOKEN": "secret"}) == "secret"
    assert remote_token(read_properties({}), {"TOKEN": "secret"}) is None


@pytest.mark.parametrize("environ", [{}, {"TOKEN": ""}])
def test_a_named_variable_without_a_value_is_an_error(environ):
    with pytest.raises(
        SparkConfigError, match=r"spark\.remote\.token\.env names a variable that is not set"
    ):
        remote_token(_CONFIG, environ)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sc://localhost:7", ("localhost", 7)),
        ("sc://cluster", ("cluster", 15002)),
        ("sc://cluster:443/;use_ssl=true;token=a", ("cluster", 443)),
        ("sc://[::1]:7/", ("::1", 7)),
    ],
)
def test_an_address_is_read(url, address):
    assert connect_address(url) == address


@pytest.mark.parametrize(
    "url", ["spark://cluster:7077", "sc://", "sc://:15002", "sc://cluster/path", "sc://a:port"]
)
def test_what_is_no_address_is_refused_by_name(url):
    with pytest.raises(SparkConfigError, match=r"spark\.remote"):
        ConnectSessions(url, None, _CONFIG, "app")


@pytest.mark.parametrize(
    ("url", "token", "expected"),
    [
        ("sc://a:1", None, "sc://a:1/;user_agent=kcl-mld%20app%3B1"),
        ("sc://a:1/", "t=;", "sc://a:1/;token=t%3D%3B;user_agent=kcl-mld%20app%3B1"),
        ("sc://a:1/;use_ssl=true;user_agent=me", None, "sc://a:1/;use_ssl=true;user_agent=me"),
        (
            "sc://a:1/;use_ssl=true;",
            "t",
            "sc://a:1/;use_ssl=true;token=t;user_agent=kcl-mld%20app%3B1",
        ),
    ],
)
def test_token_and_name_are_added_to_the_address(url, token, expected):
    assert complete_url(url, token, "app;1") == expected


def test_before_there_is_a_session_everything_is_quiet_and_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
    sessions = ConnectSessions(f"sc://127.0.0.1:{port}", None, _CONFIG, "app")
    sessions.interrupt("tag")
    sessions.renew()
    with pytest.raises(SparkUnreachable, match=rf"no Spark server answers at 127\.0\.0\.1:{port}"):
        sessions.get()
    sessions.close()
    with pytest.raises(SparkUnreachable, match="are closed"):
        sessions.get()


def test_a_pyspark_with_another_name_for_its_exit_handler_is_told_of(caplog, monkeypatch):
    handlers = []
    monkeypatch.setattr(sessions.atexit, "unregister", handlers.append)
    sessions._forbid_calls_at_exit(SimpleNamespace(_on_exit="handler"))
    assert (handlers, caplog.text) == (["handler"], "")
    sessions._forbid_calls_at_exit(SimpleNamespace(_renamed="handler"))
    assert handlers == ["handler"]
    assert "has another handler at exit" in caplog.text


def test_this_pyspark_has_the_handler_and_what_hangs_up():
    """A release that renames one of them is told here, and warned of at start."""
    assert callable(SparkConnectClient._on_exit)
    names = SparkConnectClient.__init__.__code__.co_names
    assert {"_channel", "_closed"} <= set(names)
