"""Moves of lease tables, cut anywhere, in both directions, with workers that write in between."""

from __future__ import annotations

from hypothesis import given, settings, strategies as st

from kcl_mld.leases.model.lease_item import is_lease_item, item_key
from kcl_mld.leases.model.lease_move import RowKind, RowName, contents
from kcl_mld.leases.rules.foreign_rows import foreign_rows
from kcl_mld.leases.rules.lease_migration import plan_move
from tests.fakes.lease_rows import FULL, LEADER, METRICS, ORDERS, Rows, multi, single

OPTIONAL = sorted(FULL.keys() - {"leaseCounter", "ownerSwitchesSinceCheckpoint"})
ROWS = st.dictionaries(
    st.integers(0, 9), st.sets(st.sampled_from(OPTIONAL)), min_size=1, max_size=5
)
KINDS = st.sampled_from(RowKind)


def table(rows: dict[int, set[str]], kind: RowKind) -> Rows:
    make = single if kind is RowKind.SINGLE else multi
    items = [make(number, **{name: FULL[name] for name in has}) for number, has in rows.items()]
    return Rows([*items, LEADER, METRICS])


def steps(rows: Rows, to: RowKind):
    move = plan_move(rows.list(), to, ORDERS.identifier)
    assert not move.problems
    return move.steps


def takable(rows: Rows) -> dict[str, list[str]]:
    """Keys of the rows of each shard that some worker could take."""
    found: dict[str, list[str]] = {}
    for key, item in rows.items.items():
        if is_lease_item(item):
            found.setdefault(RowName.parse(key).shard_id, []).append(key)
    return found


def is_refused(rows: Rows, *, is_multi_stream: bool) -> bool:
    """Whether a worker of ours refuses the table."""
    return foreign_rows(rows.list(), "app", is_multi_stream=is_multi_stream) is not None


@given(ROWS, KINDS, st.lists(st.tuples(KINDS, st.integers(0, 12)), max_size=6), KINDS)
@settings(max_examples=300)
def test_however_often_a_move_is_cut_and_turned_it_ends_as_if_done_at_once(numbers, kind, cuts, to):
    rows = table(numbers, kind)
    for direction, cut in cuts:
        rows.carry_out(steps(rows, direction)[:cut])
    rows.carry_out(steps(rows, to))
    assert rows.items == table(numbers, to).items
    assert steps(rows, to) == ()


@given(ROWS, KINDS, st.data())
def test_at_every_moment_each_shard_has_its_position_and_at_most_one_row_to_take(
    numbers, kind, data
):
    rows = table(numbers, kind)
    wanted = {
        RowName.parse(item_key(item)).shard_id: contents(item)
        for item in rows.list()
        if is_lease_item(item)
    }
    to = RowKind.MULTI if kind is RowKind.SINGLE else RowKind.SINGLE
    todo = list(steps(rows, to))
    while todo:
        if data.draw(st.integers(0, 9)) == 0:
            to = data.draw(KINDS)
            todo = list(steps(rows, to))
            continue
        rows.carry_out([todo.pop(0)])
        has = {
            RowName.parse(key).shard_id: contents(item)
            for key, item in rows.items.items()
            if key not in ("Leader", "w1")
        }
        assert has == wanted
        assert all(len(keys) == 1 for keys in takable(rows).values())
        if steps(rows, to) and steps(rows, _other(to)):
            assert is_refused(rows, is_multi_stream=True)
            assert is_refused(rows, is_multi_stream=False)


def _other(kind: RowKind) -> RowKind:
    return RowKind.MULTI if kind is RowKind.SINGLE else RowKind.SINGLE


@given(ROWS, st.integers(0, 12), st.integers(1, 5))
def test_what_a_worker_wrote_in_between_is_moved_too(numbers, cut, counter):
    rows = table(numbers, RowKind.SINGLE)
    rows.carry_out(steps(rows, RowKind.MULTI)[:cut])
    written = [key for key, item in rows.items.items() if is_lease_item(item)]
    for key in written:
        rows.items[key] = {**rows.items[key], "leaseCounter": {"N": str(100 + counter)}}
    rows.carry_out(steps(rows, RowKind.MULTI))
    assert len([key for key in rows.items if ":" in key]) == len(numbers)
    for key in written:
        name = RowName(RowName.parse(key).shard_id, ORDERS.identifier).key
        assert rows.items[name]["leaseCounter"] == {"N": str(100 + counter)}
