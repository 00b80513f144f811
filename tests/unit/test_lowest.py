"""Which versions ``make test-lowest`` takes, from the lower bounds in ``setup.cfg``."""

from __future__ import annotations

import configparser
from pathlib import Path

from tests.lowest import EXTRAS, ROOT, TESTS, pins

SETUP = (ROOT / "setup.cfg").read_text("utf-8")


def test_each_lower_bound_becomes_a_pin():
    text = """\
[options.extras_require]
spark =
    # a comment
    pyspark[connect]>=4.0.1,<4.4
    pandas<3
    deltalake>=1.6.0
postgres =
    psycopg[binary]>=3.2.1
dev =
    ruff>=0.9
"""
    assert pins(text) == ["pyspark==4.0.1", "deltalake==1.6.0", "psycopg==3.2.1"]


def test_every_library_of_the_spark_child_has_a_lower_bound():
    parser = configparser.ConfigParser()
    parser.read_string(SETUP)
    lines = [
        line
        for extra in EXTRAS
        for line in parser["options.extras_require"][extra].splitlines()
        if line and not line.startswith("#")
    ]
    assert len(pins(SETUP)) == len(lines) > 4


def test_its_tests_are_there():
    assert all(Path(ROOT, each).exists() for each in TESTS)
