"""Appends in S3 by entries of the log that we write ourselves: what they cost, and when they may be."""

import json
import logging

import pytest
from deltalake import DeltaTable

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.table import own_entry
from kcl_mld.spark.table.data_files import DataFile
from kcl_mld.spark.table.delta_log import DeltaLog
from kcl_mld.spark.table.own_entry import entry_text, followed, is_served
from kcl_mld.spark.table.store import open_store
from tests.unit.spark.s3_kit import BUCKET, S3
from tests.unit.spark.table.test_s3 import sink_at
from tests.unit.spark.table_kit import (
    at,
    batch,
    commit,
    expected,
    frame,
    shard,
    spark_schema,
)

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("s3")]

#: Data, the mark of its job, the stamp of the entry before, the entry, the mark's removal.
REQUESTS = {"PutObject": 3, "HeadObject": 1, "DeleteObject": 1}


@pytest.fixture(scope="module")
def server():
    with EmbeddedAws() as aws:
        yield S3(aws)


@pytest.fixture
def s3(server, monkeypatch):
    for name, text in server.aws.environment.items():
        monkeypatch.setenv(name, text)
    yield server
    server.aws.control(faults=[])


class Appends:
    """A sink, and what each of its appends costs by the server's count."""

    def __init__(self, s3, place, number=0, **properties):
        self.s3, self.number, self.end = s3, number, 0
        self.sink = sink_at(place, **properties)
        self.sink.mark(shard(number))

    def append(self, count=1, before_commit=lambda: None):
        """Requests by operation."""
        one = batch(shard(self.number), self.end, self.end + count)
        begun = self._calls()
        staged = self.sink.write(frame(one), [one])
        self.s3_calls_before = self._calls()
        before_commit()
        between = self._difference(self._calls(), self.s3_calls_before)
        assert commit(self.sink, staged, one) == ["stands"]
        self.end += count
        return self._difference(self._difference(self._calls(), begun), between)

    def _calls(self):
        calls = self.s3.aws.control()["calls"]
        return {name[3:]: n for name, n in calls.items() if name.startswith("s3.")}

    @staticmethod
    def _difference(now, before):
        found = {name: n - before.get(name, 0) for name, n in now.items()}
        return {name: n for name, n in found.items() if n}


def test_an_append_of_one_file_costs_the_same_at_any_length_of_the_log(s3):
    place = s3.place()
    appends = Appends(s3, place)
    appends.append()  # makes the table
    costs = [appends.append() for _ in range(40)]
    assert costs == [REQUESTS] * 40
    assert appends.sink.store.requests > 40 * sum(REQUESTS.values())
    assert s3.rows_in(place) == expected(s0=41)
    assert not s3.pending(place)
    assert sink_at(place).mark(shard()) == at(41)


def test_each_further_file_costs_one_more(s3):
    appends = Appends(s3, s3.place(), sink__partitionBy="n")
    appends.append()
    assert appends.append(3) == {**REQUESTS, "PutObject": 5}


def test_each_commit_of_others_in_between_costs_two_more(s3):
    place = s3.place()
    ours = Appends(s3, place)
    ours.append()
    others = Appends(s3, place, 1)
    others.append()

    def two_more():
        others.append()
        others.append()

    ours.append()
    cost = ours.append(before_commit=two_more)
    assert cost == {**REQUESTS, "PutObject": 5, "GetObject": 2}
    assert ours.append() == REQUESTS
    assert s3.rows_in(place) == expected(s0=4, s1=3)


def test_a_shard_that_another_writer_has_moved_is_lost_without_a_second_commit(s3):
    place = s3.place()
    first, late = Appends(s3, place), Appends(s3, place)
    first.append()
    late.end = 1
    late.sink.mark(shard())
    late.append()
    one = batch(shard(), 2, 3)
    first.sink.mark(shard())
    staged = first.sink.write(frame(one), [one])
    first.end = 2
    late.append()
    assert commit(first.sink, staged, one) == ["lost"]
    assert s3.rows_in(place) == expected(s0=3)


def test_what_changes_the_table_is_met_by_opening_it_anew(s3):
    place = s3.place()
    appends = Appends(s3, place)
    appends.append()
    appends.append()
    options = dict(appends.sink.store.options())

    def alter():
        DeltaTable(place, storage_options=options).alter.set_table_properties(
            {"delta.appendOnly": "true"}
        )

    assert appends.append(before_commit=alter) != REQUESTS
    assert appends.append() == REQUESTS
    assert s3.rows_in(place) == expected(s0=4)


def test_a_change_that_forbids_to_write_is_noticed_by_the_next_append(s3):
    place = s3.place()
    appends = Appends(s3, place)
    appends.append()
    appends.append()
    table = DeltaTable(place, storage_options=dict(appends.sink.store.options()))
    table.alter.add_constraint({"positive": "n > 0"})
    with pytest.raises(SinkRefused, match="CHECK constraint positive"):
        appends.append()
    assert s3.rows_in(place) == expected(s0=2)


def test_another_table_in_its_place_is_no_table_to_append_to(s3):
    place = s3.place()
    appends = Appends(s3, place)
    appends.append()
    appends.append()
    for key in s3.keys(place):
        name = f"{place}/{key}".removeprefix(f"s3://{BUCKET}/")
        s3.client.delete_object(Bucket=BUCKET, Key=name)
    other = Appends(s3, place, 1)
    for _ in range(3):
        other.append()
    with pytest.raises(SinkRefused, match="it is another table now"):
        appends.append()


def test_a_put_that_met_itself_stands_at_no_further_look(s3, caplog):
    """The answer to the first one was lost, and botocore has repeated it."""
    caplog.set_level(logging.INFO)
    place = s3.place()
    appends = Appends(s3, place)
    appends.append()
    appends.append()
    rule = {"service": "s3", "operation": "PutObject", "contains": '"commitInfo"'}
    s3.aws.control(faults=[{**rule, "when": "after", "drop": True, "times": 1}])
    cost = appends.append()
    assert cost == {**REQUESTS, "PutObject": 4, "GetObject": 1}
    assert s3.rows_in(place) == expected(s0=3)


def test_tables_that_are_not_served_are_committed_by_delta_rs(s3, monkeypatch):
    monkeypatch.setattr(own_entry, "is_served", lambda *_: False)
    place = s3.place()
    appends = Appends(s3, place)
    costs = [sum(appends.append().values()) for _ in range(12)]
    # As docs/spark/tables.md says: each entry since the last log checkpoint is read.
    assert costs[1:] == list(range(19, 30))
    assert s3.rows_in(place) == expected(s0=12)


def test_optimize_of_delta_rs_removes_files_that_our_entries_name(s3):
    place = s3.place()
    appends = Appends(s3, place, sink__partitionBy="shard_id")
    for _ in range(3):
        appends.append()
    table = DeltaTable(place, storage_options=dict(appends.sink.store.options()))
    assert len(table.file_uris()) == 3
    table.optimize.compact()
    assert len(table.file_uris()) == 1
    appends.append()
    table.update_incremental()
    assert len(table.file_uris()) == 2
    assert table.to_pyarrow_table().num_rows == 4


def test_an_entry_says_what_delta_rs_would_say(tmp_path):
    log = DeltaLog(open_store(str(tmp_path)))
    log.create(spark_schema({"n": "long", "p": "string"}), ["p"], {}, {"x": 1})
    files = [
        DataFile(f"job/{chr(code)}x%2F-{code}.parquet", 1, 2, 3, {"p": value}, [], [])
        for code, value in [(n, f"a/b c%ü\"'{chr(n)}") for n in range(1, 300)] + [(300, None)]
    ]
    with log.snapshot() as table:
        table.commit(files, {"a/b": 5})
    entry = (tmp_path / "_delta_log" / f"{1:020}.json").read_text(encoding="utf-8")
    theirs = [json.loads(line) for line in entry.split("\n") if line]
    ours = [json.loads(line) for line in entry_text(files, {"a/b": 5}, ["p"], 7).splitlines()]
    assert [each["txn"] for each in ours if "txn" in each] == [{"appId": "a/b", "version": 5}]
    assert ours[0]["commitInfo"]["operation"] == "WRITE"
    assert ours[0]["commitInfo"]["operationParameters"] == {
        "mode": "Append",
        "partitionBy": '["p"]',
    }

    def added(entries):
        found = [each["add"] for each in entries if "add" in each]
        return [{name: value for name, value in add.items() if value is not None} for add in found]

    assert added(ours) == added(theirs)
    assert len(added(ours)) == 300


@pytest.mark.parametrize(
    ("protocol", "wanted"),
    [
        ((1, 2, None, None), True),
        ((1, 1, None, None), True),
        ((1, 3, None, None), False),  # CHECK constraints
        ((1, 4, None, None), False),  # change data feed, generated columns
        ((2, 5, None, None), False),  # column mapping
        ((1, 7, None, ["appendOnly"]), False),
        ((3, 7, [], ["appendOnly", "invariants"]), True),
        ((3, 7, [], ["appendOnly", "checkConstraints"]), False),
        ((3, 7, [], ["inCommitTimestamp"]), False),
        ((3, 7, [], ["rowTracking", "domainMetadata"]), False),
        ((3, 7, ["deletionVectors"], ["deletionVectors"]), False),
        ((4, 8, None, None), False),
    ],
)
def test_tables_are_served_whose_protocol_asks_nothing_more_of_an_append(protocol, wanted):
    assert is_served(*protocol) is wanted


@pytest.mark.parametrize(
    ("action", "numbers"),
    [
        ({"txn": {"appId": "a", "version": 3}}, {"a": 3}),
        ({"remove": {"path": "x"}}, {}),
        ({"commitInfo": {"operation": "OPTIMIZE"}}, {}),
        ({"commitInfo": {"operation": "RESTORE"}}, None),
        ({"metaData": {}}, None),
        ({"protocol": {}}, None),
        ({"domainMetadata": {}}, None),
        ({"not-yet-thought-of": {}}, None),
    ],
)
def test_of_others_entries_those_are_followed_that_leave_the_table_as_it_is(action, numbers):
    assert followed(json.dumps(action) + "\n") == numbers
    assert followed("no json") is None
