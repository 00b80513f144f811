"""Which versions ``make test-lowest`` takes, from the lower bounds in ``setup.cfg``."""

from __future__ import annotations

import configparser
from pathlib import Path

from tests.lowest import EXTRAS, NEWER, ROOT, TESTS, pins

SETUP = (ROOT / "setup.cfg").read_text("utf-8")


def test_each_lower_bound_becomes_a_pin():
    text = """\
[options]
install_requires =
    boto3>=1.41
    click>=8.3

[options.extras_require]
local =
    moto[server]>=5.2.5
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
    assert pins(text) == [
        "boto3==1.41",
        "click==8.3",
        "moto==5.2.5",
        "pyspark==4.0.1",
        "deltalake==1.6.0",
        "psycopg==3.2.1",
        "botocore==1.41",
    ]


def test_every_library_has_a_lower_bound():
    parser = configparser.ConfigParser()
    parser.read_string(SETUP)
    texts = [parser["options"]["install_requires"]]
    texts += [parser["options.extras_require"][extra] for extra in EXTRAS]
    lines = [
        line for text in texts for line in text.splitlines() if line and not line.startswith("#")
    ]
    assert len(pins(SETUP)) - 1 == len(lines) > 7


def test_its_tests_are_there():
    assert all(Path(ROOT, each.partition("::")[0]).exists() for each in (*TESTS, *NEWER))
    for each in NEWER:
        file, *_, name = each.split("::")
        assert f"def {name}(" in Path(ROOT, file).read_text("utf-8")
