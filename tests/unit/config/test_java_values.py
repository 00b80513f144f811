"""What the JDK itself made of random texts: recorded with OpenJDK 17, compared with ours.

``tests/data/java_values.jsonl`` has a line a case: what was called, the input in base64, and the
outcome, null for an exception: Properties.load (entries in order), Duration.parse (seconds),
Double.parseDouble, Integer.parseInt, Long.parseLong, and StreamTokenizer as commons-beanutils sets
it up for lists.
"""

import base64
import json
import math
from pathlib import Path

import pytest

from kcl_mld.config.keys import Key, Kind
from kcl_mld.config.properties import parse
from kcl_mld.config.values import convert, parse_java_int
from kcl_mld.errors import ConfigError

LINES = (Path(__file__).parents[2] / "data" / "java_values.jsonl").read_text().splitlines()
CASES = [(what, base64.b64decode(data), outcome) for what, data, outcome in map(json.loads, LINES)]


def of(what):
    return [(data, outcome) for name, data, outcome in CASES if name == what]


@pytest.mark.parametrize(("data", "outcome"), of("properties"))
def test_files_are_read_alike(data, outcome):
    if outcome is None:
        with pytest.raises(ConfigError, match="Malformed"):
            parse(data)
    else:
        assert [[entry.key, entry.value] for entry in parse(data)] == outcome


@pytest.mark.parametrize(("data", "seconds"), of("duration"))
def test_durations_are_read_alike(data, seconds):
    converted = convert(Key("k", Kind.DURATION, None, ""), data.decode())
    if seconds is not None and seconds >= 0:
        assert converted.value == pytest.approx(seconds)
        return
    assert converted.value is None
    assert ("Negative" in converted.problems[0].text) is (seconds is not None)


@pytest.mark.parametrize(("data", "number"), of("double"))
def test_decimals_are_read_alike(data, number):
    converted = convert(Key("k", Kind.N0_DOUBLE, None, ""), data.decode())
    expected = None if number is None else float(number.replace("Infinity", "inf")) or None
    same = converted.value == expected
    assert same or (math.isnan(expected) and math.isnan(converted.value))


@pytest.mark.parametrize("bits", [32, 64])
def test_whole_numbers_are_read_alike(bits):
    for data, number in of("int" if bits == 32 else "long"):
        assert parse_java_int(data.decode(), bits) == number


@pytest.mark.parametrize(("data", "words"), of("words"))
def test_lists_are_split_alike(data, words):
    assert list(convert(Key("k", Kind.WORDS, None, ""), data.decode()).value) == words
