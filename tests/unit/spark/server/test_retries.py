"""pyspark's own policies of retries, told to be short; and what does not obey."""

from __future__ import annotations

import logging
import socket
import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.connect.client import SparkConnectClient

from kcl_mld.spark.failures import is_server_gone
from kcl_mld.spark.server import sessions
from kcl_mld.spark.server.sessions import hang_up, retry_shortly, waits_s


@pytest.fixture(autouse=True)
def _fresh():
    sessions._warn_once.cache_clear()


def client_of_nobody():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return SparkConnectClient(f"sc://localhost:{probe.getsockname()[1]}")


def test_pysparks_own_policies_obey(caplog):
    client = client_of_nobody()
    try:
        before = waits_s(client.get_retry_policies(), 15)
        assert before is not None
        assert before > 300
        retry_shortly(client, 4)
        assert (waits_s(client.get_retry_policies(), 4) or 99) < 6
        assert caplog.records == []
    finally:
        client.close()


@pytest.mark.filterwarnings("ignore:.RETRIES_EXCEEDED")
def test_a_server_that_is_not_there_is_noticed_in_seconds():
    client = client_of_nobody()
    retry_shortly(client, 1)
    began = time.monotonic()
    try:
        with pytest.raises(PySparkException) as met:
            client.get_configs("spark.version")
        assert is_server_gone(met.value)
    finally:
        client.close()
    assert time.monotonic() - began < 20


class Stubborn:
    """A policy that does not look at what it is told."""

    def to_state(self):
        return self

    def next_attempt(self):
        return 1


class Patient(Stubborn):
    """One that waits for long."""

    left = 4

    def next_attempt(self):
        self.left -= 1
        return None if self.left < 0 else 60_000


@pytest.mark.parametrize("policies", [[Stubborn()], [Patient()], [object()], None])
def test_what_does_not_obey_is_told_once_and_left_alone(policies, caplog):
    class Client:
        def get_retry_policies(self):
            return policies

    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            retry_shortly(Client(), 4)
    (told,) = caplog.records
    assert (
        "this version of pyspark can't be configured to retry for a few seconds"
        in told.getMessage()
    )


def test_a_client_that_is_hung_up_is_closed():
    client = client_of_nobody()
    hang_up(client)
    assert client.is_closed


def test_a_client_that_cannot_be_hung_up_is_told(caplog):
    class Client:
        is_closed = False

    hang_up(Client())
    assert "cannot disconnect" in caplog.text
