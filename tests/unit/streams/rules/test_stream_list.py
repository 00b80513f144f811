"""Streams come and go with the account's list; leases of those that left are deleted."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from kcl_mld.config.stream_list import FormerStrategy
from kcl_mld.config.stream_selection import StreamSelection
from kcl_mld.streams.rules import stream_list
from kcl_mld.streams.rules.stream_list import (
    LOOK_S,
    FoundStreams,
    KnownTags,
    Pending,
    SeenStreams,
    judge_former,
    tags_to_ask,
)

ALL = frozenset("abcdefy")
NAMES = st.sets(st.sampled_from("abcdef"))


def found(before, chosen, now, selection, listed=ALL):
    return stream_list.found(before, listed, chosen, now, selection)


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
    ignored_empty = FoundStreams(before, ignored_empty=True)
    assert found(before, set(), 900.0, StreamSelection(), listed=()) == ignored_empty
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


NO, AUTO, PROVIDED = FormerStrategy
WAIT_S = 3600.0


class Leader:
    """Looks from time to time."""

    def __init__(self, strategy, wait_s=WAIT_S):
        self.strategy, self.wait_s = strategy, wait_s
        self.pending = Pending()

    def look(self, now, **seen):
        seen = {"leased": {"a", "b"}, "listed": {"a"}, "now": now, **seen}
        self.pending, due = judge_former(
            self.pending, SeenStreams(**seen), self.strategy, self.wait_s
        )
        return due


def test_without_deletion_leases_stay():
    leader = Leader(NO)
    assert leader.look(0.0) == ()
    assert leader.look(1e9) == ()


def test_auto_detection_deletes_after_the_wait_and_not_before():
    leader = Leader(AUTO)
    assert leader.look(100.0) == ()
    assert leader.look(100.0 + WAIT_S - 0.1) == ()
    assert leader.look(100.0 + WAIT_S) == ("b",)
    assert leader.look(160.0 + WAIT_S) == ("b",), "due until its leases are gone"
    assert leader.look(220.0 + WAIT_S, leased={"a"}) == ()
    assert leader.look(280.0 + WAIT_S) == (), "it waits anew"


def test_a_stream_that_comes_back_is_revived():
    leader = Leader(AUTO)
    assert leader.look(0.0) == ()
    assert leader.look(WAIT_S - 1, listed={"a", "b"}) == ()
    assert leader.look(WAIT_S + 1) == ()


def test_a_wait_of_zero_is_over_at_once():
    assert Leader(AUTO, 0.0).look(0.0) == ("b",)


def test_the_provided_list_names_what_is_deleted():
    leader = Leader(PROVIDED)
    streams = {"leased": {"a", "b", "c"}, "named": {"a", "b", "x"}}
    assert leader.look(0.0, **streams) == ()
    assert leader.look(WAIT_S, **streams) == ("b",)
    assert leader.look(WAIT_S, leased={"a", "b", "c"}) == (), "it was struck from the list"


@pytest.mark.parametrize("strategy", FormerStrategy)
def test_a_stream_that_does_not_exist_any_more_is_deleted_with_any_strategy(strategy):
    leader = Leader(strategy)
    assert leader.look(0.0, absent={"b"}) == ()
    assert leader.look(LOOK_S, absent={"b"}) == ("b",)


def test_a_stream_that_is_there_again_or_listed_is_not_absent():
    leader = Leader(NO)
    assert leader.look(0.0, absent={"b"}) == ()
    assert leader.look(60.0) == ()
    assert leader.look(90.0, absent={"b"}) == ()
    assert leader.look(120.0, absent={"a", "b"}) == ()
    assert leader.look(180.0, absent={"a", "b"}, listed={"a", "b"}) == ()


def test_who_finds_no_stream_of_its_list_deletes_nothing():
    leader = Leader(AUTO)
    assert leader.look(0.0, followed=0, absent={"b"}) == ()
    assert leader.look(2 * WAIT_S, followed=0, absent={"b"}) == ()
    assert leader.look(2 * WAIT_S, absent={"b"}) == ("b",)


STREAMS = st.sets(st.sampled_from("abcd"))


def test_nothing_is_deleted_by_a_list_that_is_older_than_the_leases():
    leader = Leader(AUTO, 0.0)
    assert leader.look(100.0, list_read_at=100.0) == ()
    assert leader.look(160.0, list_read_at=100.0) == ()
    assert leader.look(220.0, list_read_at=float("-inf"), absent={"b"}) == ()
    assert leader.look(280.0, list_read_at=280.0) == ("b",)


@given(
    st.sampled_from(FormerStrategy),
    st.lists(st.tuples(STREAMS, STREAMS, STREAMS, STREAMS, st.integers(1, 100)), max_size=8),
)
def test_only_streams_that_have_waited_all_the_time_are_deleted(strategy, looks):
    leader, now, seen = Leader(strategy, 150.0), 0.0, []
    for leased, listed, named, absent, pause in looks:
        now += pause
        streams = {"leased": leased, "listed": listed, "named": named, "absent": absent}
        due = set(leader.look(now, **streams))
        seen.append((now, streams))
        assert due <= leased - listed
        for one in due:
            waits = strategy is AUTO or (strategy is PROVIDED and one in named)
            by_wait = waits and _since(seen, one, strategy) <= now - 150.0
            by_absence = one in absent and _since(seen, one, None) <= now - LOOK_S
            assert by_wait or by_absence


def _since(seen, one, strategy):
    """When the last unbroken time began in which it was former (or, without strategy, absent)."""
    begun = seen[-1][0]
    for now, streams in reversed(seen):
        former = one in streams["leased"] - streams["listed"]
        named = strategy is not PROVIDED or one in streams["named"]
        if not former or not named or (strategy is None and one not in streams["absent"]):
            break
        begun = now
    return begun
