"""``properties/spark.properties`` says nothing that is not so."""

import re
from pathlib import Path

import pytest

from kcl_mld.config.properties import last_of_each, parse
from kcl_mld.config.spark import keys
from kcl_mld.spark import config

SAMPLE = Path(__file__).resolve().parents[3] / "properties" / "spark.properties"
TEXT = SAMPLE.read_text("ascii")
COMMENTED = re.findall(r"^#(spark\.\S+) = (.+)$", TEXT, re.MULTILINE)


def entries():
    """Keys and values that are in force."""
    found = last_of_each(parse(SAMPLE.read_bytes(), str(SAMPLE)))
    return {name: entry.value for name, entry in found.items()}


def test_what_is_in_force_is_a_delta_table_on_an_embedded_server():
    effective = config.read_properties(entries())
    assert (effective.sink, effective.sink_path) == ("delta", "/data/flights")
    assert effective.is_embedded


def test_the_program_is_the_sample_app():
    program, app = entries()["executableName"].split()
    assert program == "kcl-mld-spark"
    assert (SAMPLE.parents[1] / app).is_file()


def test_every_key_is_in_the_sample():
    shown = {name for name, _ in COMMENTED} | entries().keys()
    assert keys.BY_NAME.keys() - shown == set()


@pytest.mark.parametrize(("name", "text"), COMMENTED)
def test_a_line_in_comments_is_the_default_or_a_value_that_works(name, text):
    assert keys.is_known(name)
    assert keys.check(name, text) is None
    if (key := keys.BY_NAME.get(name)) is not None and key.default is not None:
        assert text == key.default


@pytest.mark.parametrize(("name", "text"), COMMENTED)
def test_a_line_may_be_uncommented_by_itself(name, text):
    config.read_properties(entries() | {name: text})
