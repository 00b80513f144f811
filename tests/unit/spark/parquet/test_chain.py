"""The walk along the parquet chain, and what compactions make of it, without a disk."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from mld.spark.errors import SinkRefused
from mld.spark.model import Position
from mld.spark.parquet import chain, chain_layout


def at(number: int) -> Position:
    return Position(number)


class Shelf:
    """The directories of one shard: names and markers, as a disk would have them."""

    def __init__(self, *ends: int) -> None:
        self.markers: dict[str, str] = {}
        after = None
        for end in ends:
            self.put(after, at(end))
            after = at(end)

    def put(self, after, to, *, segment=False, rows=0) -> None:
        name = chain_layout.segment_name(after, to) if segment else chain_layout.link_name(after)
        self.markers[name] = chain_layout.Marker(to, 1, rows=rows).encode()

    @property
    def segments(self) -> list[str]:
        below = f"{chain_layout.SEGMENTS}/"
        return [name.removeprefix(below) for name in self.markers if name.startswith(below)]

    def walk(self, begin=None) -> list[chain.Link]:
        longest = chain.longest_segments(self.segments)
        return list(chain.walk(self.markers.get, longest, begin))

    def ends(self) -> list[int]:
        return [link.to.sequence for link in self.walk()]


def test_the_walk_goes_from_end_to_end():
    links = Shelf(3, 7, 9).walk()
    assert [(link.after, link.to) for link in links] == [
        (None, at(3)),
        (at(3), at(7)),
        (at(7), at(9)),
    ]
    assert not any(link.is_segment for link in links)
    assert chain.last(iter(links)) == links[-1]
    assert chain.last([]) is None


def test_the_walk_may_begin_anywhere_on_the_chain():
    assert [link.to for link in Shelf(3, 7, 9).walk(at(3))] == [at(7), at(9)]


def test_the_walk_takes_the_longest_segment_in_place_of_its_links():
    shelf = Shelf(3, 7, 9, 12)
    shelf.put(None, at(7), segment=True)
    assert shelf.ends() == [7, 9, 12]
    shelf.put(None, at(9), segment=True)
    assert shelf.ends() == [9, 12]
    assert shelf.walk()[0].name == "_segments/start~9.0"
    assert shelf.walk()[0].is_segment


def test_a_segment_may_begin_in_the_middle():
    shelf = Shelf(3, 7, 9, 12)
    shelf.put(at(3), at(9), segment=True)
    assert shelf.ends() == [3, 9, 12]


def test_names_in_the_segments_that_are_none_are_skipped():
    names = ["x", "start~", "~3.0", "9.0~3.0", "start~3.0", "1.0~2.0.tmp", ".nfs000"]
    assert chain.longest_segments(names) == {None: at(3)}


def test_the_longest_segment_counts_in_whatever_order_they_are_listed():
    assert chain.longest_segments(["start~3.0", "start~9.0"]) == {None: at(9)}
    assert chain.longest_segments(["start~9.0", "start~3.0"]) == {None: at(9)}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "to": "3.0"}',
        '{"format": 1}',
        '{"format": 1, "to": "3.0", "count": []}',
    ],
)
def test_a_marker_that_cannot_be_read_stops_the_walk(text):
    shelf = Shelf(3, 7)
    shelf.markers["after=3.0"] = text
    with pytest.raises(SinkRefused, match=r"after=3\.0/_kcl\.json can't be read"):
        shelf.walk()


def test_a_marker_that_leads_backwards_stops_the_walk():
    shelf = Shelf(3, 7)
    shelf.put(at(7), at(7))
    with pytest.raises(SinkRefused, match="leads backwards"):
        shelf.walk()


def test_a_segment_without_a_marker_stops_the_walk():
    with pytest.raises(SinkRefused, match="a segment without"):
        list(chain.walk({}.get, {None: at(3)}))


def test_positions_are_compared_as_numbers():
    shelf = Shelf(9, 10)
    shelf.put(None, at(9), segment=True)
    shelf.put(None, at(10), segment=True)
    assert shelf.ends() == [10]


def test_a_hint_is_believed_only_with_the_link_that_it_names():
    shelf = Shelf(3, 7, 9)
    link = shelf.walk()[1]
    text = chain.encode_hint(link)
    assert chain.decode_hint(text, shelf.markers.get) == link
    assert chain.decode_hint(text, {}.get) is None
    shelf.put(at(3), at(8))
    assert chain.decode_hint(text, shelf.markers.get) is None


@pytest.mark.parametrize("text", ["", "torn", "[]", "{}", '{"after": 1, "to": "2.0"}', "null"])
def test_a_torn_hint_counts_as_none(text):
    assert chain.decode_hint(text, Shelf(3).markers.get) is None


def test_a_run_begins_behind_the_last_full_segment():
    shelf = Shelf(3, 7, 9, 12)
    assert len(chain.run_to_merge(shelf.walk(), 2, 100)) == 4
    assert chain.run_to_merge(shelf.walk(), 5, 100) == []
    shelf.put(None, at(7), segment=True, rows=99)
    assert [link.to for link in chain.run_to_merge(shelf.walk(), 2, 100)] == [at(7), at(9), at(12)]
    shelf.put(None, at(7), segment=True, rows=100)
    assert [link.to for link in chain.run_to_merge(shelf.walk(), 2, 100)] == [at(9), at(12)]
    assert chain.run_to_merge(shelf.walk()[:2], 1, 100) == []


def test_what_a_segment_replaces_is_told_from_what_it_does_not():
    shelf = Shelf(3, 7, 9, 12)
    shelf.put(None, at(3), segment=True)
    shelf.put(None, at(9), segment=True)
    taken = [link for link in shelf.walk() if link.is_segment]
    names = [*shelf.markers, "_hint.json"]
    assert list(chain.superseded(names, shelf.segments, taken)) == [
        "after=start",
        "after=3.0",
        "after=7.0",
        "_segments/start~3.0",
    ]
    assert list(chain.superseded(names, shelf.segments, [])) == []


def test_a_segment_from_the_middle_replaces_nothing_before_it():
    shelf = Shelf(3, 7, 9, 12)
    shelf.put(at(3), at(9), segment=True)
    taken = [link for link in shelf.walk() if link.is_segment]
    assert list(chain.superseded(shelf.markers, shelf.segments, taken)) == [
        "after=3.0",
        "after=7.0",
    ]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 3)),
        st.tuples(st.just("zombie"), st.integers(0, 30)),
        st.tuples(st.just("merge"), st.integers(0, 12)),
        st.tuples(st.just("die before publishing"), st.integers(0, 12)),
        st.tuples(st.just("remove"), st.integers(0, 6)),
        st.tuples(st.just("hint"), st.integers(0, 30)),
    ),
    max_size=40,
)


class Disk(Shelf):
    """A shard with rows; every action is one that a rename or an unlink makes atomic."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[int]] = {}
        self.end = 0
        self.hint = ""

    def append(self, count: int) -> None:
        after = at(self.end) if self.end else None
        name = chain_layout.link_name(after)
        assert name not in self.markers
        self.rows[name] = list(range(self.end + 1, self.end + count + 1))
        self.end += count
        self.put(after, at(self.end))

    def zombie(self, after: int) -> None:
        """Whoever extends a position that was extended before finds its name taken."""
        starts = [None, *(at(n) for n in range(1, self.end))]
        link = starts[after % len(starts)]
        on_chain = {link.to for link in Shelf.walk(self)}
        on_chain |= {chain_layout.Marker.decode(text).to for text in self.markers.values()}
        if self.end and (link is None or link in on_chain):
            assert chain_layout.link_name(link) in self.markers

    def merge(self, full: int) -> None:
        run = chain.run_to_merge(self.walk(), 2, max(1, full))
        if run:
            name = chain_layout.segment_name(run[0].after, run[-1].to)
            rows = [row for link in run for row in self.rows.get(link.name, [])]
            self.rows[name] = rows
            self.put(run[0].after, run[-1].to, segment=True, rows=len(rows))

    def remove(self, stop_after: int) -> None:
        taken = [link for link in self.walk() if link.is_segment]
        gone = list(chain.superseded(list(self.markers), self.segments, taken))
        for name in gone[:stop_after]:  # dies there
            self.rows.pop(name, None)
            if name.startswith(chain_layout.SEGMENTS):
                del self.markers[name]

    def do(self, action: str, number: int) -> None:
        if action == "append":
            self.append(number)
        elif action == "zombie":
            self.zombie(number)
        elif action == "merge":
            self.merge(number)
        elif action == "remove":
            self.remove(number)
        elif action == "hint" and (links := self.walk()):
            self.hint = chain.encode_hint(links[number % len(links)])

    def judge(self) -> None:
        walked = self.walk()
        seen = [row for link in walked for row in self.rows[link.name]]
        assert seen == list(range(1, self.end + 1))
        hinted = chain.decode_hint(self.hint, self.markers.get)
        rest = self.walk(hinted.to) if hinted else walked
        last = chain.last(rest) or hinted
        assert (last.to.sequence if last else 0) == self.end


@given(steps=STEPS)
@pytest.mark.untraced
@settings(max_examples=300, deadline=None)
def test_appends_merges_removals_and_deaths_in_any_order_keep_each_row_once(steps):
    disk = Disk()
    for action, number in steps:
        disk.do(action, number)
        disk.judge()
