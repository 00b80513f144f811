"""No bytes make the reading of a properties file raise anything but ConfigError."""

import io

import javaproperties
import pytest
from hypothesis import given, strategies as st

from kcl_mld.config.build import build_config
from kcl_mld.config.config import KEYS
from kcl_mld.config.credentials import parse_chain
from kcl_mld.config.properties import parse
from kcl_mld.config.settings import resolve
from kcl_mld.config.values import convert
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import mask

#: Bytes that mean something to the grammar come often.
_BYTES = st.lists(
    st.one_of(
        st.sampled_from([b"\\", b"\n", b"\r", b"\r\n", b" ", b"\t", b"\f", b"=", b":", b"#", b"!"]),
        st.sampled_from([b"\\u00e9", b"\\u12", b"\\ud83d", b"a", b"key", b"\\\n", b"\xc3\xa9"]),
        st.binary(max_size=3),
    ),
    max_size=40,
).map(b"".join)
_WORDS = st.sampled_from(
    ["", " ", "0", "-1", "1", "78", "true", "no", "PT1H", "-PT1S", "a=b,c", "{a b}", "LATEST", "arn",
     "http://h:1", "arn:aws:kinesis:us-east-1:123456789012:stream/s", "us-east-1", "1e3", "NaN",
     "DefaultCredentialsProvider", "StsAssumeRoleCredentialsProvider|a|b|endpoint=x^us-east-1"]
)  # fmt: skip
_VALUES = st.one_of(_WORDS, st.text(max_size=12), st.integers().map(str), st.floats().map(str))


@given(_BYTES)
def test_no_bytes_make_the_parser_raise_anything_but_its_error(data):
    try:
        entries = parse(data)
    except ConfigError:
        return
    assert [entry.line for entry in entries] == sorted(entry.line for entry in entries)


@given(_BYTES)
def test_the_parser_agrees_with_javaproperties(data):
    lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if any(line.strip(b" \t\f") == b"\\" for line in lines):
        return  # after a bare backslash java.util.Properties still accepts a comment
    try:
        expected = [
            (item.key, item.value)
            for item in javaproperties.parse(io.BytesIO(data))
            if isinstance(item, javaproperties.KeyValue)
        ]
    except javaproperties.InvalidUEscapeError:
        expected = None
    try:
        found = [(entry.key, entry.value) for entry in parse(data)]
    except ConfigError:
        found = None
    assert found == expected


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=20), max_size=5))
def test_what_javaproperties_writes_is_read_back(entries):
    data = javaproperties.dumps(entries, ensure_ascii=True).encode("iso-8859-1")
    assert {entry.key: entry.value for entry in parse(data)} == entries


@given(
    st.dictionaries(st.sampled_from([*KEYS, "workerIdentifier", "x[a]", ""]), _VALUES, max_size=12)
)
def test_no_values_make_the_configuration_raise_anything_but_its_error(entries):
    data = javaproperties.dumps(entries, ensure_ascii=True).encode("iso-8859-1")
    built = build_config(data, "f", worker_id="w")
    assert len(built.settings) == len(KEYS)
    for finding in built.findings:
        assert str(finding)
    if built.config is None:
        with pytest.raises(ConfigError, match=r"^f"):
            built.require()


@given(st.sampled_from(list(KEYS.values())), st.text())
def test_no_text_makes_a_conversion_raise(key, text):
    convert(key, text)


@given(st.text())
def test_no_text_makes_names_credentials_or_masking_raise(text):
    resolve(text)
    parse_chain(text)
    mask(text)
