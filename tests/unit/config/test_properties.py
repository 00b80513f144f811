"""The grammar of .properties files, row by row as java.util.Properties reads it."""

import io

import javaproperties
import pytest

from kcl_mld.config.properties import Entry, last_of_each, parse
from kcl_mld.errors import ConfigError

#: What the reference table says: bytes of a file -> its entries.
ROWS = [
    (b"a=b", [("a", "b")]),
    (b"a:b", [("a", "b")]),
    (b"a b", [("a", "b")]),
    (b"a\tb", [("a", "b")]),
    (b"a = b", [("a", "b")]),
    (b"a \x0c b", [("a", "b")]),
    (b"  a=b", [("a", "b")]),
    (b"a==b", [("a", "=b")]),
    (b"a:=b", [("a", "=b")]),
    (b"a = = b", [("a", "= b")]),
    (b"a=b  ", [("a", "b  ")]),
    (b"a=  b", [("a", "b")]),
    (b"a=\\ b", [("a", " b")]),
    (b"a", [("a", "")]),
    (b"a=", [("a", "")]),
    (b"=b", [("", "b")]),
    (b"# a=b", []),
    (b" \t! a=b", []),
    (b"", []),
    (b"\n \t\n", []),
    (b"a=b # c", [("a", "b # c")]),
    (b"a=b\\\n  c", [("a", "bc")]),
    (b"a=b\\\r\n  c", [("a", "bc")]),
    (b"a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
    (b"a=b\\\\\\\nc=d", [("a", "b\\c=d")]),
    (b"a=b\\\n# x", [("a", "b# x")]),
    (b"# c \\\na=b", [("a", "b")]),
    (b"a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
    (b"a=b\\", [("a", "b")]),
    (b"a=b\\\n", [("a", "b")]),
    (b"a\\ b=c", [("a b", "c")]),
    (b"a\\=b=c", [("a=b", "c")]),
    (b"a\\:b=c", [("a:b", "c")]),
    (b"a=\\t\\n\\r\\f\\\\", [("a", "\t\n\r\f\\")]),
    (b"a=\\q", [("a", "q")]),
    (b"a=\\U00e9", [("a", "U00e9")]),
    (b"a=C:\\path", [("a", "C:path")]),
    (b"a=\\u00e9", [("a", "é")]),
    (b"a=\\u00E9", [("a", "é")]),
    (b"a=\\ud83d\\ude00", [("a", "😀")]),
    (b"\\u0061=b", [("a", "b")]),
    (b"a=b\nc=d\re=f\r\ng=h", [("a", "b"), ("c", "d"), ("e", "f"), ("g", "h")]),
    (b'workerId = "w"', [("workerId", '"w"')]),
    (b"a=1\na=2", [("a", "1"), ("a", "2")]),
    (b"a=\xc3\xa9", [("a", "Ã©")]),
    (b"\xef\xbb\xbfa=b", [("ï»¿a", "b")]),
    (b"a=b\x0bc\x1c\x85", [("a", "b\x0bc\x1c\x85")]),
]


@pytest.mark.parametrize(("data", "expected"), ROWS)
def test_every_row_of_the_table_is_read_as_java_reads_it(data, expected):
    assert [(entry.key, entry.value) for entry in parse(data)] == expected


@pytest.mark.parametrize(("data", "expected"), ROWS)
def test_javaproperties_agrees_on_every_row(data, expected):
    assert list(read_with_javaproperties(data)) == expected


def test_a_comment_may_follow_a_backslash_that_stands_alone():
    # Here javaproperties differs: to java.util.Properties the line is still empty.
    assert parse(b"\\\n# x\na=b") == (Entry("a", "b", 3),)


@pytest.mark.parametrize(
    ("data", "entries"),
    [
        (b"\\", [("", "")]),
        (b"a=b\n\\\n", [("a", "b"), ("", "")]),
        (b"\\\r\n", []),
        (b"\\\n\n", []),
        (b"\\\n# c\\", []),
        (b"\\\n\\", [("", "")]),
        (b"\\\na\\", [("a", "")]),
    ],
)
def test_a_backslash_that_ends_the_file_alone_is_an_empty_entry(data, entries):
    assert [(entry.key, entry.value) for entry in parse(data)] == entries


@pytest.mark.parametrize("tail", [b"\\u", b"\\u1", b"\\u12", b"\\u123", b"\\u00g0", b"\\uu0041"])
def test_a_malformed_unicode_escape_names_file_and_line(tail):
    with pytest.raises(ConfigError, match=r"^my\.properties:3: Malformed \\uxxxx encoding"):
        parse(b"a=b\n\nc=d" + tail, "my.properties")


def test_a_malformed_unicode_escape_in_a_comment_is_no_problem():
    assert parse(b"# \\u12") == ()


def test_lines_are_counted_over_comments_blanks_and_continuations():
    data = b"# one\n\na=1\\\n 2\r\n\rb=3\n! c\nc=\\\n\\\n4"
    assert [(entry.key, entry.value, entry.line) for entry in parse(data)] == [
        ("a", "12", 3),
        ("b", "3", 6),
        ("c", "4", 8),
    ]


def test_the_last_of_equal_keys_counts():
    assert last_of_each(parse(b"a=1\nb=2\na=3")) == {
        "a": Entry("a", "3", 3),
        "b": Entry("b", "2", 2),
    }


def read_with_javaproperties(data):
    for item in javaproperties.parse(io.BytesIO(data)):
        if isinstance(item, javaproperties.KeyValue):
            yield item.key, item.value


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_a_file_in_utf_16_is_told_as_such(encoding):
    with pytest.raises(
        ConfigError, match=r"^app\.properties:1: the file is UTF-16.*save it as ISO"
    ):
        parse("a = b\n".encode(encoding), "app.properties")
