"""What a user may ask for."""

from collections import Counter

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.simulate.scenario import (
    ChangeKind,
    MembershipChange,
    Scenario,
    check,
    group_names,
    parse_change,
    parse_duration,
    spread,
)
from tests.unit.simulate.world import change


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10s", 10), ("5m", 300), ("1.5h", 5400), ("250ms", 0.25), ("90", 90), ("0", 0)],
)
def test_a_length_of_time(text, seconds):
    assert parse_duration(text, key="--x") == seconds


@pytest.mark.parametrize("text", ["", "s", "5 m", "-5s", "1d", "1e3", "٣s", "5m30s"])
def test_no_length_of_time(text):
    with pytest.raises(ConfigError, match=r"--x: .* is not a length of time, such as 10s"):
        parse_duration(text, key="--x")


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("join", "20@5m", MembershipChange(ChangeKind.JOIN, 300, 20)),
        ("join", "1:blue@5m", MembershipChange(ChangeKind.JOIN, 300, 1, "blue")),
        ("kill", "leader@8m", MembershipChange(ChangeKind.KILL, 480, 1, is_leader=True)),
        ("leave", "leader@90", MembershipChange(ChangeKind.LEAVE, 90, 1, is_leader=True)),
    ],
)
def test_a_change(kind, text, expected):
    assert parse_change(ChangeKind(kind), text, key="--x") == expected


@pytest.mark.parametrize(
    "text", ["3", "0@5m", "3@", "@5m", "-1@5m", "3:a-b@5m", "3@soon", "boss@1m"]
)
def test_no_change(text):
    with pytest.raises(ConfigError, match="--kill: "):
        parse_change(ChangeKind.KILL, text, key="--kill")


@pytest.mark.parametrize(("kind", "text"), [("join", "leader@5m"), ("kill", "leader:groupA@5m")])
def test_the_leader_can_only_go_and_has_no_group_here(kind, text):
    with pytest.raises(ConfigError, match="the leader can only leave or be killed"):
        parse_change(ChangeKind(kind), text, key="")


def scenario(*changes):
    return Scenario(workers=4, groups=group_names(2), shards=8, changes=tuple(map(change, changes)))


@pytest.mark.parametrize(
    "changes",
    [
        ("kill 4@5m",),
        ("kill 3@5m", "join 2@4m", "leave 3@6m"),
        ("join 3:groupC@5m", "kill 3:groupC@6m"),
        ("kill leader@5m", "kill 3@6m"),
    ],
)
def test_changes_that_can_happen(changes):
    check(scenario(*changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (("kill 5@5m",), "--kill: 5 at 300 s, but then only 4 workers run"),
        (("join 2@6m", "kill 5@5m"), "--kill: 5 at 300 s, but then only 4 workers run"),
        (("leave 3:groupB@5m",), "--leave: 3 at 300 s, but then only 2 workers of groupB run"),
        (("leave 1:green@5m",), "--leave: 1 at 300 s, but then only 0 workers of green run"),
        (("kill 4@5m", "kill leader@6m"), "--kill: 1 at 360 s, but then only 0 workers run"),
        (("join 1@30m",), "--join: at 1800 s, but the simulation ends at 1800 s; see --duration"),
    ],
)
def test_changes_that_cannot_happen(changes, why):
    with pytest.raises(ConfigError) as raised:
        check(scenario(*changes))
    assert str(raised.value) == why


def test_workers_go_where_the_fewest_are():
    live = Counter(groupA=3, groupB=1)
    assert spread(live, 4, ("groupA", "groupB")) == ["groupB", "groupB", "groupA", "groupB"]
    assert live == {"groupA": 4, "groupB": 4}


def test_groups_have_letters():
    assert group_names(3) == ("groupA", "groupB", "groupC")
