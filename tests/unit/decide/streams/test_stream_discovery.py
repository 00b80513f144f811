"""Which streams are read after each look at an account's list."""

from hypothesis import given, strategies as st

from mld.decide.streams import stream_discovery
from mld.decide.streams.stream_discovery import FoundStreams, KnownTags, tags_to_ask
from mld.model.streams.stream_selection import StreamSelection

ALL = frozenset("abcdefy")
NAMES = st.sets(st.sampled_from("abcdef"))


def found(before, chosen, now, selection, listed=ALL):
    return stream_discovery.found(before, listed, chosen, now, selection)


def test_a_stream_that_vanishes_is_gone_after_the_grace():
    rule = StreamSelection(grace_s=100.0)
    first = found({}, {"a", "b"}, 10.0, rule)
    assert first.names == ("a", "b")
    second = found(first.seen, {"a"}, 109.9, rule)
    assert second.names == ("a", "b")
    third = found(second.seen, {"a"}, 110.0, rule)
    assert third.names == ("a",)
    assert found(second.seen, {"a", "b"}, 110.0, rule).seen == {"a": 110.0, "b": 110.0}


def test_without_a_grace_it_is_gone_at_once():
    assert found({"a": 1.0, "b": 1.0}, {"b"}, 1.0, StreamSelection()).names == ("b",)


def test_an_empty_list_is_not_believed_where_streams_were_found():
    before = {"a": 1.0}
    doubted = FoundStreams(before, doubted=True)
    assert found(before, set(), 900.0, StreamSelection(), listed=()) == doubted
    assert found({}, set(), 900.0, StreamSelection(), listed=()) == FoundStreams({})
    assert found(before, set(), 900.0, StreamSelection()) == FoundStreams({})


def test_too_many_streams_are_cut_and_those_that_are_read_stay():
    rule = StreamSelection(max_streams=2)
    cut = found({"y": 1.0}, {"a", "b", "y"}, 2.0, rule)
    assert cut.names == ("a", "y")
    assert cut.too_many == ("b",)
    assert found({}, {"a", "b"}, 2.0, rule).too_many == ()


@given(st.lists(NAMES, min_size=1), st.integers(0, 3), st.integers(0, 5))
def test_what_is_there_is_read_and_the_limit_holds(looks, limit, grace):
    rule = StreamSelection(max_streams=limit, grace_s=float(grace))
    seen: dict[str, float] = {}
    for now, chosen in enumerate(looks):
        result = found(seen, chosen, float(now), rule)
        read = set(result.names)
        assert not limit or len(read) <= limit
        assert chosen <= read | set(result.too_many)
        assert set(seen) & chosen <= read
        assert all(now - result.seen[name] < max(grace, 1) for name in read)
        seen = dict(result.seen)


def known(**asked_at):
    return {name: KnownTags({}, at) for name, at in asked_at.items()}


def test_tags_of_new_streams_are_asked_for_then_of_those_asked_longest_ago():
    ages = known(old=0.0, older=-5.0, fresh=90.0, gone=0.0)
    names = ["old", "new", "older", "fresh"]
    assert tags_to_ask(names, ages, 100.0, 60.0) == ("new", "older", "old")
    assert tags_to_ask(names, ages, 100.0, 3.0) == ("new", "older", "old")
    assert tags_to_ask(names, ages, 100.0, 2.0) == ("new", "older")
    assert tags_to_ask(names, ages, 100.0, 0.5) == ("new", "older")
    assert tags_to_ask(names[:1], {}, 0.0, 60.0) == ("old",)
