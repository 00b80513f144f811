"""A commit costs the same after many others: counted in files, requests and bytes, not in time."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform

from kcl_mld.spark.iceberg.local_files import LocalFiles
from kcl_mld.spark.iceberg.upkeep import LEAST, MERGING, OF_NEW_TABLE
from tests.unit.spark.iceberg.test_iceberg_sink import open_sink, the_table, write
from tests.unit.spark.iceberg_kit import (
    NAME,
    SCHEMA,
    Told,
    arrow_of,
    catalog_in,
    commit,
    marked,
    rows_in,
)
from tests.unit.spark.table_kit import at, batch, expected, shard

#: Snapshots expire and manifests are merged each 20 commits: 15 rounds. 10,000 by hand.
COMMITS = int(os.environ.get("KCL_MLD_ICEBERG_COMMITS", "300"))
KEEP = "history.expire.min-snapshots-to-keep"
AGE = "history.expire.max-snapshot-age-ms"


@pytest.fixture
def catalog(tmp_path):
    made = catalog_in(tmp_path / "t", Told)
    yield made
    made.close()


def make(catalog, **properties):
    return catalog.create_table(NAME, SCHEMA, properties={**OF_NEW_TABLE, AGE: "0", **properties})


def commits(table, begin, end, step=1):
    for n in range(begin, end):
        assert commit(table, batch(shard(), n * step, (n + 1) * step)) == ["stands"]


@pytest.mark.proof
def test_snapshots_and_manifests_stay_few_and_no_row_is_lost(catalog, monkeypatch):
    make(catalog)
    table = marked(catalog)
    counted = {"in": 0, "out": 0}

    def counting(name, method):
        def call(self, location):
            counted[name] += 1
            return method(self, location)

        return call

    monkeypatch.setattr(LocalFiles, "new_input", counting("in", LocalFiles.new_input))
    monkeypatch.setattr(LocalFiles, "new_output", counting("out", LocalFiles.new_output))
    figures = []
    for n in range(COMMITS // 20):
        counted.update({"in": 0, "out": 0})
        commits(table, 20 * n, 20 * n + 20)
        found = table.last_seen()
        manifests = len(found.current_snapshot().manifests(found.io))
        size = Path(found.metadata_location.removeprefix("file://")).stat().st_size
        figures.append((len(found.snapshots()), manifests, size, counted["in"], counted["out"]))
    snapshots, manifests, sizes, reads, writes = zip(*figures, strict=True)
    assert max(snapshots) <= int(OF_NEW_TABLE[KEEP]) + LEAST, figures
    assert max(manifests) <= 20, figures
    assert max(sizes[2:]) <= 1.5 * max(sizes[:3]), figures
    # Metadata is read twice and written once; a merge reads what it merges.
    assert max(reads[1:]) <= 20 * 4, figures
    assert max(writes) <= 20 * 5, figures
    assert rows_in(catalog) == expected(s0=len(figures) * 20)
    assert marked(catalog).mark(shard()) == at(len(figures) * 20)


def test_a_manifest_that_is_large_enough_is_not_written_again(catalog, monkeypatch):
    """Else each merge would write down all files that the table ever had."""
    target = 16_384
    name = "commit.manifest.target-size-bytes"
    assert name in MERGING
    monkeypatch.setitem(MERGING, name, str(target))
    buckets = PartitionSpec(PartitionField(2, 1000, BucketTransform(8), "n_bucket"))
    catalog.create_table(NAME, SCHEMA, partition_spec=buckets, properties=OF_NEW_TABLE)
    table = marked(catalog)
    for n in range(25):
        assert commit(table, batch(shard(), 20 * n, 20 * n + 20)) == ["stands"]
    found = table.last_seen()
    manifests = found.current_snapshot().manifests(found.io)
    assert len(manifests) < 20
    assert max(each.manifest_length for each in manifests) <= target
    assert rows_in(catalog) == expected(s0=500)


def test_snapshots_of_others_tags_and_young_ones_stay(catalog):
    make(catalog)
    table = marked(catalog)
    commits(table, 0, 3)
    found = catalog.load_table(NAME)
    tagged = found.current_snapshot().snapshot_id
    found.manage_snapshots().create_tag(tagged, "kept").commit()
    catalog.load_table(NAME).append(arrow_of(batch(shard(7), 0, 1)))
    theirs = catalog.load_table(NAME).current_snapshot().snapshot_id
    commits(table, 3, 44)
    found = catalog.load_table(NAME)
    there = {each.snapshot_id for each in found.snapshots()}
    assert {tagged, theirs} < there
    assert len(there) <= int(OF_NEW_TABLE[KEEP]) + LEAST + 2
    found.transaction().set_properties({AGE: "3600000"}).commit_transaction()
    commits(table, 44, 66)
    assert there < {each.snapshot_id for each in catalog.load_table(NAME).snapshots()}
    assert rows_in(catalog) == expected(s0=66, s7=1)


def test_a_table_that_is_not_ours_is_left_alone_and_the_warning_names_the_property(
    tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr("kcl_mld.spark.sinks.iceberg._MANY_SNAPSHOTS", 25)
    catalog = catalog_in(tmp_path / "t", Told)
    catalog.create_table(NAME, SCHEMA, properties={AGE: "0", KEEP: "1"})
    commits(marked(catalog), 0, 30)
    assert len(catalog.load_table(NAME).snapshots()) == 30
    with caplog.at_level(logging.WARNING):
        open_sink(tmp_path / "t")
    assert "has 30 snapshots" in caplog.text
    assert "kclMld.upkeep = true" in caplog.text
    catalog.load_table(NAME).transaction().set_properties(
        {"kclMld.upkeep": "true"}
    ).commit_transaction()
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        open_sink(tmp_path / "t")
    assert not caplog.text
    commits(marked(catalog), 30, 31)
    assert len(catalog.load_table(NAME).snapshots()) == 2
    catalog.close()


def test_another_worker_that_has_expired_the_same_snapshots_is_no_fault(catalog):
    make(catalog)
    one = marked(catalog)
    commits(one, 0, 39)

    def expires():
        theirs = catalog.load_table(NAME)
        first = min(theirs.snapshots(), key=lambda each: each.sequence_number)
        theirs.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()

    catalog.before += [expires, lambda: None]
    commits(one, 39, 42)
    assert rows_in(catalog) == expected(s0=42)


def test_a_table_that_is_made_here_is_looked_after(tmp_path):
    sink = open_sink(tmp_path / "t")
    write(sink, batch(shard(), 0, 1))
    table = the_table(tmp_path / "t")
    assert set(OF_NEW_TABLE.items()) <= set(table.properties.items())
    snapshot = table.current_snapshot()
    assert snapshot.summary.additional_properties["kcl-mld.application"] == "app"
