"""A property is one field: what declares it, and that nothing is declared in vain or twice."""

import collections
import dataclasses

import pytest

from kcl_mld.config.config import KEYS, SECTIONS, Config
from kcl_mld.config.keys import Key, Kind, by_rule, keys_of, named, own_millis, readers_of
from kcl_mld.config.settings import Setting, Settings
from kcl_mld.config.spark.keys import SparkValues
from tests.unit.config.test_config_build import config


@dataclasses.dataclass(frozen=True, kw_only=True)
class Section:
    """One field of each sort."""

    table: str = dataclasses.field(metadata=named("table", "of the fleet"))
    wait_s: float = own_millis("waitMillis", 1_500, "a pause")
    both: int = by_rule(7, Key("one", Kind.N0_INT, 1, ""), Key("two", Kind.N0_INT, 2, ""))
    plain: int = 3


def test_a_section_has_the_keys_of_its_fields():
    assert [key.name for key in keys_of(Section)] == ["table", "waitMillis", "one", "two"]
    assert [name for name, _, _ in readers_of(Section)] == ["wait_s"]
    assert Section(table="t") == Section(table="t", wait_s=1.5, both=7, plain=3)


def test_a_section_is_read_from_the_values_of_its_keys_and_from_what_rules_give():
    settings = Settings("f")
    for key in keys_of(Section):
        settings.by_name[key.name] = Setting(key, 250 if key.name == "waitMillis" else key.default)
    assert settings.read(Section, table="t") == Section(table="t", wait_s=0.25)
    assert settings.read(Section, table="t", wait_s=9.0, both=1).wait_s == 9.0


@pytest.mark.parametrize("sections", [SECTIONS, (SparkValues,)])
def test_no_key_is_declared_twice(sections):
    declared = collections.Counter(key.name for section in sections for key in keys_of(section))
    assert [name for name, times in declared.items() if times > 1] == []


def sections_in(value):
    """Classes of the parts of a configuration that declare keys."""
    if dataclasses.is_dataclass(value):
        if any(keys_of(value)):
            yield type(value)
        for one in dataclasses.fields(value):
            yield from sections_in(getattr(value, one.name))


def test_every_section_of_the_configuration_is_in_the_table():
    built = config(
        "multiStream = true",
        "streams = str",
        "streamTags = a=b",
        "childFailurePolicy = deadletter",
        "onFailureDestination = file:letters",
    )
    assert isinstance(built, Config)
    assert set(sections_in(built)) == set(SECTIONS)


@pytest.mark.parametrize("section", [*SECTIONS, SparkValues])
def test_a_field_without_a_file_is_what_its_key_has_as_default(section):
    defaults = {one.name: one.default for one in dataclasses.fields(section)}
    for name, key, read in readers_of(section):
        if key.default is not None:
            assert defaults[name] == read(key.default), key.name


def test_every_key_says_what_it_means():
    assert all(key.doc for key in KEYS.values())
