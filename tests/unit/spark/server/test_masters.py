"""A standalone master that is not there is seen at once."""

import socket

import pytest

from kcl_mld.config.spark.addresses import addresses_of
from kcl_mld.spark.errors import SparkConfigError, SparkUnreachable
from kcl_mld.spark.server.setup import require_master


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("local[*]", ()),
        ("yarn", ()),
        ("k8s://https://one:443", ()),
        ("spark://one:7077", (("one", 7077),)),
        ("spark://one:7077,two:7078", (("one", 7077), ("two", 7078))),
        ("spark://[::1]:7077", (("::1", 7077),)),
    ],
)
def test_the_addresses_of_a_master(master, addresses):
    assert addresses_of(master) == addresses


@pytest.mark.parametrize(
    "master",
    ["spark://", "spark://one", "spark://:7077", "spark://one:x", "spark://one:" + "9" * 5000],
)
def test_a_master_without_host_or_port_is_refused(master):
    with pytest.raises(SparkConfigError, match="must look like spark://host:7077"):
        require_master(master)


def test_one_answer_is_enough_and_silence_names_every_address():
    with socket.create_server(("127.0.0.1", 0)) as alive, socket.socket() as dead:
        dead.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        here, gone = (f"127.0.0.1:{each.getsockname()[1]}" for each in (alive, dead))
        require_master(f"spark://{gone},{here}")
        with pytest.raises(SparkUnreachable, match=r"no Spark master answers") as failure:
            require_master(f"spark://{gone}")
        assert gone in str(failure.value)


def test_other_masters_are_not_looked_for():
    def connect(*_):
        raise AssertionError("nobody is asked")

    require_master("local[2]", connect)
    require_master("yarn", connect)
