"""What README shows is what the code says."""

import dataclasses
import pathlib
import re

import pytest

from mld import spark
from mld.spark import errors, keys
from mld.spark.model import BatchContext
from tests import readme

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def section(name):
    """Text between the markers of a generated or checked section."""
    return README.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0].strip()


@pytest.mark.parametrize(("name", "body"), readme.sections().items())
def test_a_generated_section_is_what_the_code_says(name, body):
    assert section(name) == body


def test_every_key_of_the_spark_pipeline_is_a_row_of_its_table():
    rows = re.findall(r"^\| `(spark\.[a-zA-Z.]+)` \|", section("spark-keys"), re.MULTILINE)
    assert rows == [key.name for key in keys.KEYS]


def test_every_error_of_a_spark_child_is_a_row_with_its_exit_code():
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", section("spark-exits"), re.MULTILINE)
    codes = {name: int(code) for code, name in rows}
    assert codes["SparkConfigError"] == errors.SparkConfigError.exit_code
    assert all(getattr(errors, name).exit_code == code for name, code in codes.items())


def test_what_the_guide_imports_can_be_imported():
    guide = README.partition("## The PySpark pipeline")[2].partition("\n## ")[0]
    imported = re.findall(r"from mld\.spark import ([\w, ]+)", guide)
    names = {name.strip() for line in imported for name in line.split(",")}
    assert names
    assert names <= set(spark.__all__)


def test_the_guide_names_everything_that_a_function_is_told():
    guide = README.partition("## The PySpark pipeline")[2].partition("\n## ")[0]
    told = {field.name for field in dataclasses.fields(BatchContext)}
    assert told <= set(re.findall(r"`(\w+)`", guide))


def test_every_difference_that_the_conformance_kit_names_is_a_row_of_the_table():
    rows = set(re.findall(r"^\| `([a-z0-9-]+)` \|", section("differences"), re.MULTILINE))
    named = set()
    for path in sorted((ROOT / "protocol" / "conform").glob("*.py")):
        text = path.read_text("utf-8")
        named |= set(re.findall(r'differs\(\s*[^,]+,\s*"([a-z0-9-]+)"', text))
        named |= set(re.findall(r'row="([a-z0-9-]+)"', text))
    assert named
    assert named <= rows


def test_every_difference_has_an_id_of_its_own():
    ids = re.findall(r"^\| `([a-z0-9-]+)` \|", section("differences"), re.MULTILINE)
    assert ids
    assert len(ids) == len(set(ids))
