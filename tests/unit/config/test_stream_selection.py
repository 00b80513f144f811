"""Rules that choose streams."""

import pytest

from kcl_mld.config.stream_selection import NamePattern, StreamSelection, parse_tags
from kcl_mld.errors import MalformedData


@pytest.mark.parametrize(
    ("text", "yes", "no"),
    [
        ("orders-*", ["orders-", "orders-eu"], ["orders", "my-orders-eu", "ORDERS-eu"]),
        ("orders-*, click?", ["orders-1", "clicks"], ["click", "clicks2"]),
        ("a.b", ["a.b"], ["axb"]),
        ("[ab]c", ["ac", "bc"], ["cc"]),
        (r"/orders-\d{1,2}/", ["orders-1", "orders-12"], ["orders-123", "x-orders-1"]),
        ("/a|b/", ["a", "b"], ["ab"]),
        ("/", ["/"], ["a"]),
    ],
)
def test_a_pattern_matches_whole_names(text, yes, no):
    pattern = NamePattern.parse(text)
    assert all(map(pattern.matches, yes))
    assert not any(map(pattern.matches, no))


@pytest.mark.parametrize(
    ("text", "why"),
    [("/(/", "not a regular expression"), ("a,,b", "an empty pattern"), ("", "an empty pattern")],
)
def test_a_pattern_that_is_none_is_refused(text, why):
    with pytest.raises(MalformedData, match=why):
        NamePattern.parse(text)


def test_tags_are_pairs():
    assert parse_tags("team=data, env = prod,note=a=b,empty=") == (
        ("team", "data"),
        ("env", "prod"),
        ("note", "a=b"),
        ("empty", ""),
    )


@pytest.mark.parametrize("text", ["team", "=x", "", "a=1,", "a=1,a=2"])
def test_tags_of_another_form_are_refused(text):
    with pytest.raises(MalformedData):
        parse_tags(text)


def test_a_stream_must_have_a_name_that_matches_and_all_tags():
    rule = StreamSelection(
        names=NamePattern.parse("o*"),
        excluded=NamePattern.parse("*-test"),
        tags=(("a", "1"), ("b", "")),
    )
    assert rule.has_name("orders")
    assert not rule.has_name("orders-test")
    assert not rule.has_name("clicks")
    assert rule.has_tags({"a": "1", "b": "", "c": "x"})
    assert not rule.has_tags({"a": "1"})
    assert not rule.has_tags({"a": "2", "b": ""})
    assert str(rule) == "all streams of names o*, not of names *-test, with tags a=1, b="
    assert str(StreamSelection(tags=(("a", "1"),))) == "all streams with tags a=1"
    assert str(StreamSelection(names=NamePattern.parse("o*"))) == "all streams of names o*"
    assert StreamSelection().has_name("x")
    assert StreamSelection().has_tags({})
