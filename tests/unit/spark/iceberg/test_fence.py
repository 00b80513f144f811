"""Rows and marks in one commit: late owners, lost answers, batches without rows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyiceberg.table import Table

from kcl_mld.spark.errors import BatchFailed, SinkRefused
from kcl_mld.spark.iceberg import commit as commit_module
from kcl_mld.spark.iceberg.commit import MOST_OVERTAKEN, PAUSES_S, TableCommit
from tests.unit.spark.iceberg_kit import (
    FATES,
    NAME,
    Storm,
    Told,
    arrow_of,
    catalog_in,
    commit,
    make_table,
    marked,
    rows_in,
)
from tests.unit.spark.table_kit import at, batch, expected, shard

SEEDS = int(os.environ.get("KCL_MLD_ICEBERG_SEEDS", "2"))
FIRST_SEED = int(os.environ.get("KCL_MLD_ICEBERG_FIRST_SEED", "0"))


@pytest.fixture
def catalog(tmp_path):
    made = catalog_in(tmp_path / "t", Told)
    make_table(made)
    yield made
    made.close()


def files_of(catalog):
    """Names of all files of the table, by folder."""
    place = Path(catalog.load_table(NAME).location().removeprefix("file://"))
    return {
        kind: sorted(each.name for each in (place / kind).rglob("*") if each.is_file())
        for kind in ("data", "metadata")
    }


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_in_a_storm_each_record_is_there_once_as_far_as_the_marks_say(catalog, seed):
    storm = Storm(catalog, [shard(n) for n in range(3)], seed)
    storm.run(40)
    found, wanted = storm.verdict()
    assert storm.happened["stands"] > 5
    assert found == wanted, storm.happened


@pytest.mark.parametrize("fate", FATES)
@pytest.mark.parametrize("attempt", [0, 1, 2])
@pytest.mark.parametrize("has_rows", [True, False])
def test_a_fault_at_any_attempt_leaves_the_rows_once_and_the_table_readable(
    catalog, fate, attempt, has_rows
):
    """Before the fault others are faster, so that pyiceberg would have repeated the commit."""
    table, other = marked(catalog), marked(catalog)
    commit(table, batch(shard(), 0, 2))
    for n in range(attempt):
        catalog.before.append(
            lambda n=n: commit(other, batch(shard(1), n, n + 1), keep=lambda _: False)
        )
        catalog.before.append(lambda: None)  # for the other one's own call
    catalog.fates = ["usual"] * 2 * attempt + [fate]
    assert commit(table, batch(shard(), 2, 6), keep=lambda n: has_rows or n < 3) == ["stands"]
    catalog.arrive()
    assert rows_in(catalog) == expected(s0=6 if has_rows else 2)
    assert marked(catalog).mark(shard()) == at(6)


@pytest.mark.parametrize("late_has_rows", [True, False])
@pytest.mark.parametrize("new_has_rows", [True, False])
def test_a_late_owner_is_fenced_with_and_without_rows_on_both_sides(
    catalog, late_has_rows, new_has_rows
):
    late, new = marked(catalog), marked(catalog)
    commit(late, batch(shard(), 0, 2))
    taken = batch(shard(), 2, 5)
    catalog.before.append(lambda: commit(new, taken, keep=lambda _: new_has_rows))
    outcome = commit(late, batch(shard(), 2, 9), keep=lambda _: late_has_rows)
    assert outcome == ["lost"]
    assert rows_in(catalog) == expected(s0=5 if new_has_rows else 2)
    assert marked(catalog).mark(shard()) == at(5)


def test_a_late_owner_of_one_shard_writes_the_others_again_without_it(catalog):
    late, new = marked(catalog), marked(catalog)
    catalog.before.append(lambda: commit(new, batch(shard(), 0, 5)))
    batches = batch(shard(), 0, 9), batch(shard(1), 0, 3)
    assert commit(late, *batches) == ["lost", "again"]
    assert commit(late, batches[1]) == ["stands"]
    assert rows_in(catalog) == expected(s0=5, s1=3)


def test_a_batch_behind_another_position_is_lost_before_anything_is_written(catalog):
    table, other = marked(catalog), marked(catalog)
    commit(other, batch(shard(), 0, 5))
    before = files_of(catalog)
    assert commit(table, batch(shard(), 0, 3)) == ["lost"]
    assert commit(table, batch(shard(), 4, 6)) == ["lost"]
    assert files_of(catalog) == before


def test_a_commit_of_a_shard_that_others_built_on_is_known_to_stand(catalog):
    """The answer is lost, and one of its two shards has gone on since."""
    table, other = marked(catalog), marked(catalog)
    batches = batch(shard(), 0, 4), batch(shard(1), 0, 3)
    catalog.fates = ["stands, broken"]
    looked = table.look

    def look():
        table.look = looked
        commit(other, batch(shard(), 4, 8))
        return looked()

    looked()
    table.look = look
    assert commit(table, *batches) == ["stands", "stands"]
    assert rows_in(catalog) == expected(s0=8, s1=3)


def test_rows_are_written_once_however_often_others_are_faster(catalog):
    table, other = marked(catalog), marked(catalog)
    commit(table, batch(shard(), 0, 1))
    there = files_of(catalog)
    for n in range(5):
        catalog.before += [
            lambda n=n: commit(other, batch(shard(1), n, n + 1), keep=lambda _: False),
            lambda: None,
        ]
    computed = []

    def rows(_):
        computed.append(1)
        return arrow_of(one)

    one = batch(shard(), 1, 4)
    made = TableCommit(table, [one], rows, pause=lambda _: None)
    made.run()
    assert made.overtaken == 5
    assert rows_in(catalog) == expected(s0=4)
    assert len(computed) == 1
    found = files_of(catalog)
    assert len(found["data"]) == len(there["data"]) + 1
    lists = [name for name in found["metadata"] if name.startswith("snap-")]
    manifests = [name for name in found["metadata"] if "-m" in name and name.endswith(".avro")]
    snapshots = catalog.load_table(NAME).snapshots()
    assert len(lists) == len(snapshots) == 7
    assert len(manifests) == 2


def test_the_files_of_a_commit_that_was_refused_and_lost_are_removed(catalog):
    late, new = marked(catalog), marked(catalog)
    catalog.before.append(lambda: commit(new, batch(shard(), 0, 5)))
    assert commit(late, batch(shard(), 0, 9)) == ["lost"]
    found = files_of(catalog)
    assert len(found["data"]) == 1
    assert len([name for name in found["metadata"] if name.endswith(".avro")]) == 2


def test_the_files_of_a_commit_of_unknown_outcome_stay(catalog):
    """Its request may arrive later, unless others have moved the branch, which nobody looks at."""
    late, new = marked(catalog), marked(catalog)
    catalog.fates = ["late"]
    catalog.before += [lambda: None, lambda: commit(new, batch(shard(), 0, 5))]
    assert commit(late, batch(shard(), 0, 9)) == ["lost"]
    assert len(files_of(catalog)["data"]) > 1
    catalog.arrive()
    assert rows_in(catalog) == expected(s0=5)


def test_a_refusal_that_nobody_explains_leaves_all_files(catalog):
    table = marked(catalog)
    catalog.fates = ["refused"]
    assert commit(table, batch(shard(), 0, 3)) == ["stands"]
    lists = [name for name in files_of(catalog)["metadata"] if name.startswith("snap-")]
    assert len(lists) == 2


def test_waits_are_bounded_and_drawn(catalog):
    pauses = []
    table = marked(catalog)
    catalog.fates = ["refused"] * MOST_OVERTAKEN
    with pytest.raises(BatchFailed, match=f"{MOST_OVERTAKEN} commits were refused"):
        commit(table, batch(shard(), 0, 3), pause=pauses.append)
    assert pauses[0] == 0.02
    assert max(pauses) == 1.0
    assert rows_in(catalog) == expected()


def test_an_outage_is_waited_for_and_then_reported(catalog):
    pauses = []
    table = marked(catalog)
    catalog.fates = ["unreached"] * len(PAUSES_S)
    with pytest.raises(ConnectionError):
        commit(table, batch(shard(), 0, 3), pause=pauses.append)
    assert pauses == list(PAUSES_S[1:])
    assert commit(table, batch(shard(), 0, 3)) == ["stands"]


def test_two_applications_and_two_epochs_have_marks_of_their_own(catalog):
    one, two = marked(catalog), marked(catalog, "other")
    assert commit(one, batch(shard(), 0, 3)) == ["stands"]
    assert two.mark(shard()) is None
    three = marked(catalog, epoch="2")
    assert three.mark(shard(epoch="2")) is None
    assert commit(three, batch(shard(epoch="2"), 0, 2), keep=lambda _: False) == ["stands"]
    assert marked(catalog).mark(shard()) == at(3)


def test_a_rollback_is_refused_while_the_marks_are_ahead_of_the_rows(catalog):
    table = marked(catalog)
    commit(table, batch(shard(), 0, 3))
    first = catalog.load_table(NAME).current_snapshot().snapshot_id
    commit(table, batch(shard(), 3, 5))
    catalog.load_table(NAME).manage_snapshots().set_current_snapshot(first).commit()
    with pytest.raises(SinkRefused, match="rolled back or replaced"):
        commit(table, batch(shard(), 5, 7))
    with pytest.raises(SinkRefused, match=r"choose a new spark.sink.epoch"):
        marked(catalog).mark(shard())
    assert rows_in(catalog) == expected(s0=3)


def test_rows_of_others_on_top_of_a_rollback_do_not_hide_it(catalog):
    table = marked(catalog)
    commit(table, batch(shard(), 0, 3))
    first = catalog.load_table(NAME).current_snapshot().snapshot_id
    commit(table, batch(shard(), 3, 5))
    theirs = catalog.load_table(NAME)
    theirs.manage_snapshots().set_current_snapshot(first).commit()
    catalog.load_table(NAME).append(arrow_of(batch(shard(7), 0, 2)))
    with pytest.raises(SinkRefused, match="rolled back or replaced"):
        commit(table, batch(shard(), 5, 7))


def test_appends_and_expiry_of_others_are_no_rollback(catalog):
    table = marked(catalog)
    commit(table, batch(shard(), 0, 2))
    older = catalog.load_table(NAME).current_snapshot().snapshot_id
    commit(table, batch(shard(), 2, 3))
    catalog.load_table(NAME).append(arrow_of(batch(shard(7), 0, 2)))
    catalog.load_table(NAME).maintenance.expire_snapshots().by_id(older).commit()
    assert commit(table, batch(shard(), 3, 5)) == ["stands"]
    assert rows_in(catalog) == expected(s0=5, s7=2)


def test_where_expiry_has_removed_what_would_tell_nothing_is_written(catalog):
    table = marked(catalog)
    commit(table, batch(shard(), 0, 3))
    for n in range(2):
        catalog.load_table(NAME).append(arrow_of(batch(shard(7), n, n + 1)))
    found = catalog.load_table(NAME)
    current = found.current_snapshot()
    for each in found.snapshots():
        if each.snapshot_id != current.snapshot_id:
            catalog.load_table(NAME).maintenance.expire_snapshots().by_id(each.snapshot_id).commit()
    with pytest.raises(SinkRefused, match="snapshots are expired"):
        commit(table, batch(shard(), 3, 5))


def test_a_table_that_was_made_anew_is_not_written_by_the_same_process(catalog):
    table = marked(catalog)
    commit(table, batch(shard(), 0, 3))
    catalog.drop_table(NAME)
    make_table(catalog)
    with pytest.raises(SinkRefused, match="another table now"):
        commit(table, batch(shard(), 3, 5))


def test_a_table_that_is_gone_is_not_written(catalog):
    table = marked(catalog)
    commit(table, batch(shard(), 0, 3))
    catalog.drop_table(NAME)
    with pytest.raises(SinkRefused, match="the table is gone"):
        commit(table, batch(shard(), 3, 5))
    assert table.mark(shard()) is None


def test_the_first_version_of_the_format_is_refused(tmp_path):
    catalog = catalog_in(tmp_path / "t")
    catalog.create_table(NAME, arrow_of().schema, properties={"format-version": "1"})
    with pytest.raises(SinkRefused, match="has version 1 of Iceberg's format"):
        marked(catalog).look()


def test_the_users_properties_stay_as_they_are(catalog):
    before = catalog.load_table(NAME).properties
    commit(marked(catalog), batch(shard(), 0, 3))
    after = catalog.load_table(NAME).properties
    assert {key: text for key, text in after.items() if not key.startswith("kclMld")} == before


def test_a_commit_that_many_others_came_before_is_reported(catalog, caplog):
    catalog.fates = ["refused"] * 11
    assert commit(marked(catalog), batch(shard(), 0, 3)) == ["stands"]
    assert "ns.rows: 11 commits of others came first" in caplog.text
    assert "retrying" not in caplog.text


def test_with_the_librarys_own_repeats_the_same_doubles_rows(catalog, monkeypatch):
    """So the tests above can fail."""
    monkeypatch.setattr("kcl_mld.spark.iceberg.commit._Judged.refresh", Table.refresh)
    late, new = marked(catalog), marked(catalog)
    commit(late, batch(shard(), 0, 2))
    catalog.before.append(lambda: commit(new, batch(shard(), 2, 5)))
    assert commit(late, batch(shard(), 2, 4)) == ["stands"]
    assert rows_in(catalog)["0", 3] == 2
    assert marked(catalog).mark(shard()) == at(4)


def test_without_its_repeats_a_lost_answer_destroys_the_table(catalog, monkeypatch):
    """So the tests above can fail."""
    monkeypatch.setitem(commit_module._FOR_EVER, "commit.retry.num-retries", "0")
    catalog.fates = ["stands, refused"]
    assert commit(marked(catalog), batch(shard(), 0, 3)) == ["stands"]
    with pytest.raises(FileNotFoundError):
        rows_in(catalog)
