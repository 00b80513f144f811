"""Delta tables in S3: the same promises, over a server that answers as S3 does."""

import threading

import pytest
from deltalake import DeltaTable

from kcl_mld.local.embedded import EmbeddedAws
from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.model import DeadLetter, Row
from kcl_mld.spark.sinks import make_sink
from kcl_mld.spark.table import s3_store, upkeep
from kcl_mld.spark.table.dead_letters import DeadLetters
from kcl_mld.spark.table.s3_access import require_buckets
from tests.unit.spark.s3_kit import BUCKET, S3
from tests.unit.spark.table_kit import at, batch, commit, expected, frame, shard

pytestmark = [pytest.mark.process, pytest.mark.xdist_group("s3")]


@pytest.fixture(scope="module")
def server():
    with EmbeddedAws() as aws:
        yield S3(aws)


@pytest.fixture
def s3(server, monkeypatch):
    for name, text in server.aws.environment.items():
        monkeypatch.setenv(name, text)
    # What a user may have set for other tables must not make our commits unsafe.
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    yield server
    server.aws.control(faults=[])


def sink_at(place, application="app", **properties):
    more = {"spark." + name.replace("__", "."): text for name, text in properties.items()}
    sink = make_sink(read_properties({"spark.sink.path": place, **more}), application)
    sink.prepare(None)
    return sink


def write(s3, sink, *batches, **more):
    for each in batches:
        sink.mark(each.shard)
    staged = sink.write(frame(*batches, **more), batches)
    return commit(sink, staged, *batches)


def test_rows_are_there_once_and_the_next_worker_begins_behind_them(s3):
    place = s3.place()
    sink = sink_at(place)
    assert sink.mark(shard()) is None
    assert write(s3, sink, batch(shard(), 0, 3), batch(shard(1), 0, 2)) == ["stands", "stands"]
    assert write(s3, sink, batch(shard(), 3, 5)) == ["stands"]
    assert sink.counts()["requests to S3"] > 0
    another = sink_at(place.replace("s3://", "s3a://"))
    assert (another.mark(shard()), another.mark(shard(1))) == (at(5), at(2))
    assert write(s3, another, batch(shard(1), 2, 4)) == ["stands"]
    assert s3.rows_in(place) == expected(s0=5, s1=4)
    assert not s3.pending(place)


def test_directories_by_column_have_their_values_in_their_names(s3):
    place = s3.place()
    sink = sink_at(place, sink__partitionBy="n")
    one = batch(shard(), 0, 2)
    sink.mark(shard())
    staged = sink.write(frame(one), [one])
    assert sorted(file.partition_values["n"] for file in staged.files) == ["1", "2"]
    assert commit(sink, staged, one) == ["stands"]
    assert f"{staged.job}/n=1/part-0.parquet" in s3.keys(place)


def test_of_two_that_extend_one_position_the_second_is_lost(s3):
    place = s3.place()
    first, second = sink_at(place), sink_at(place)
    write(s3, first, batch(shard(), 0, 2))
    late = batch(shard(), 2, 4)
    second.mark(shard())
    staged = second.write(frame(late), [late])
    assert write(s3, first, batch(shard(), 2, 3)) == ["stands"]
    assert commit(second, staged, late) == ["lost"]
    assert s3.rows_in(place) == expected(s0=3)


def test_writers_of_different_shards_are_all_there_in_the_end(s3):
    place = s3.place()
    write(s3, sink_at(place), batch(shard(9), 0, 1))
    outcomes = []

    def work(number):
        sink = sink_at(place)
        for end in range(1, 6):
            outcomes.extend(write(s3, sink, batch(shard(number), end - 1, end)))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == ["stands"] * 15
    assert s3.rows_in(place) == expected(s0=5, s1=5, s2=5, s9=1)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_commit_whose_answer_is_lost_stands_once(s3, when, times):
    place = s3.place()
    sink = sink_at(place)
    write(s3, sink, batch(shard(), 0, 2))
    rule = {"service": "s3", "operation": "PutObject", "contains": '"commitInfo"'}
    s3.aws.control(faults=[{**rule, "when": when, "drop": True, "times": times}])
    assert write(s3, sink, batch(shard(), 2, 5)) == ["stands"]
    hits = s3.aws.control()["faults"]["s3.PutObject"]
    assert hits >= 1
    assert write(s3, sink, batch(shard(), 5, 6)) == ["stands"]
    assert s3.rows_in(place) == expected(s0=6)
    assert sink_at(place).mark(shard()) == at(6)


def test_a_commit_that_stood_although_it_raised_is_recognised(s3):
    place = s3.place()
    sink = sink_at(place)
    write(s3, sink, batch(shard(), 0, 2))
    rule = {"service": "s3", "operation": "PutObject", "contains": '"commitInfo"'}
    error = {"code": "InternalError", "http_status": 400, "times": 1}
    s3.aws.control(faults=[{**rule, **error, "when": "after"}])
    assert write(s3, sink, batch(shard(), 2, 5)) == ["stands"]
    assert s3.rows_in(place) == expected(s0=5)


def test_what_the_dead_left_is_removed_after_a_week(s3, monkeypatch):
    place = s3.place()
    sink = sink_at(place)
    write(s3, sink, batch(shard(), 0, 2))
    gone, stands = batch(shard(), 2, 4), batch(shard(1), 0, 1)
    sink.write(frame(gone), [gone])
    sink.mark(shard(1))
    staged = sink.write(frame(stands), [stands])
    monkeypatch.setattr(s3_store.StoredJobs, "committed", lambda *_: None)
    assert commit(sink, staged, stands) == ["stands"]
    before = s3.keys(place)
    assert len(s3.pending(place)) == 2
    sink_at(place)
    assert s3.keys(place) == before
    monkeypatch.setattr(s3_store, "_OLD_MS", 0)
    sink_at(place)
    assert not s3.pending(place)
    assert len([key for key in before if key not in s3.keys(place)]) == 3
    assert s3.rows_in(place) == expected(s0=2, s1=1)


def test_a_failed_job_leaves_nothing(s3):
    place = s3.place()
    sink = sink_at(place)
    write(s3, sink, batch(shard(), 0, 2))
    before = s3.keys(place)
    one = batch(shard(), 2, 3)
    staged = sink.write(frame(one), [one])
    sink.discard(staged)
    assert s3.keys(place) == before


def test_of_several_tables_the_next_owner_adds_the_same_files(s3, monkeypatch):
    place = s3.place()
    sink = sink_at(place, sink__outputs="first, second")
    one, two = batch(shard(), 0, 2), batch(shard(), 2, 5)

    def frames(each):
        return {"first": frame(each), "second": frame(each)}

    sink.mark(shard())
    assert commit(sink, sink.write(frames(one), [one]), one) == ["stands"]
    staged = sink.write(frames(two), [two])
    monkeypatch.setattr(sink, "_finish", lambda _: (_ for _ in ()).throw(OSError("gone")))
    with pytest.raises(Exception, match="not yet in all"):
        sink.commit_all(staged, [two])
    assert s3.rows_in(f"{place}/first") == expected(s0=2)
    assert sink_at(place, sink__outputs="first, second").mark(shard()) == at(5)
    for name in ("first", "second"):
        assert s3.rows_in(f"{place}/{name}") == expected(s0=5)
    assert not [key for key in s3.keys(place) if key.startswith("kcl-mld-manifests/")]


def test_what_a_dead_process_left_in_a_former_epoch_is_removed_after_a_week(s3, monkeypatch):
    place = s3.place()
    sink = sink_at(place, sink__outputs="first, second")
    one = batch(shard(), 0, 2)
    sink.mark(shard())
    staged = sink.write({"first": frame(one), "second": frame(one)}, [one])

    def dies(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sink._positions, "carry_out", dies)
    with pytest.raises(KeyboardInterrupt):
        sink.commit_all(staged, [one])
    jobs = tuple(f"{name}/{part.job}/" for name, part in staged.items())
    left = [key for key in s3.keys(place) if key.startswith(("kcl-mld-manifests/", *jobs))]
    assert len(left) >= 3
    sink_at(place, sink__outputs="first, second", sink__epoch="1")
    assert not set(left) - set(s3.keys(place))
    monkeypatch.setattr(s3_store, "_OLD_MS", 0)
    sink_at(place, sink__outputs="first, second", sink__epoch="1")
    assert not set(left) & set(s3.keys(place))


def test_a_row_replaces_that_of_its_key(s3):
    place = s3.place()
    sink = sink_at(place, sink="merge", sink__key="n")
    first, again = batch(shard(), 0, 3), batch(shard(), 3, 4)
    for each in (first, again):
        sink.mark(shard())
        rows = frame(each)
        rows.rows = [{**row, "n": row["n"] % 3} for row in rows.rows]
        staged = super(type(sink), sink).write(rows, [each])
        assert commit(sink, staged, each) == ["stands"]
    assert sorted(s3.rows_in(place).items()) == [(("0", n), 1) for n in range(3)]


def test_records_are_set_aside_once(s3):
    place = s3.place()
    letters = [
        DeadLetter(shard(), Row(at(n), "key", b"bad %d" % n, 1_700_000_000_000), "no number")
        for n in (1, 2)
    ]
    for _ in range(2):
        kept = DeadLetters(place, "app", "0")
        kept.prepare()
        kept.keep(letters[:1])
        kept.keep(letters)
    held = DeltaTable(place, storage_options={"aws_allow_http": "true"})
    assert sorted(held.to_pyarrow_table().column("data").to_pylist()) == [b"bad 1", b"bad 2"]


def test_tables_are_looked_after(s3, capsys):
    place = s3.place()
    sink = sink_at(place)
    for end in range(1, 4):
        write(s3, sink, batch(shard(), end - 1, end))
    assert upkeep.main(["optimize", place]) == 0
    assert capsys.readouterr().out == "3 files were merged into 1\n"
    assert upkeep.main(["vacuum", place]) == 0
    assert capsys.readouterr().out == "0 files were removed\n"
    assert upkeep.main(["history", "--limit", "1", place]) == 0
    assert "OPTIMIZE" in capsys.readouterr().out
    assert upkeep.main(["history", f"{place}/none"]) == 2
    assert f"{place}/none is no Delta table" in capsys.readouterr().err
    assert write(s3, sink, batch(shard(), 3, 4)) == ["stands"]
    assert s3.rows_in(place) == expected(s0=4)


def config_of(place):
    return read_properties({"spark.sink.path": place})


def test_a_place_that_can_be_used_is_left_as_it_is(s3):
    place = s3.place()
    found = require_buckets(config_of(place))[BUCKET]
    assert found.endpoint == s3.aws.moto_url
    assert found.region == s3.aws.region
    assert not s3.keys(place)


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ({"operation": "PutObject", "code": "AccessDenied", "http_status": 403}, "s3:PutObject"),
        ({"operation": "GetObject", "code": "AccessDenied", "http_status": 403}, "allow s3:List"),
        ({"code": "InvalidAccessKeyId", "http_status": 403}, "credentials are wrong or have exp"),
    ],
)
def test_what_is_denied_is_told_with_what_to_allow(s3, fault, text):
    s3.aws.control(faults=[{"service": "s3", **fault}])
    with pytest.raises(SinkRefused, match=r"spark\.sink\.path=s3://") as refusal:
        require_buckets(config_of(s3.place()))
    assert text in str(refusal.value)


def test_a_bucket_that_is_not_there_is_told(s3):
    with pytest.raises(SinkRefused, match=r"there is no such bucket at http://.*: create it"):
        require_buckets(config_of("s3://no-such-bucket/table"))


def test_a_store_without_conditional_writes_is_refused(s3, monkeypatch):
    real = s3_store.S3Access.put
    monkeypatch.setattr(
        s3_store.S3Access, "put", lambda self, key, content, **_: real(self, key, content)
    )
    with pytest.raises(SinkRefused, match="ignores If-None-Match"):
        require_buckets(config_of(s3.place()))


def test_missing_credentials_are_told_and_no_keys_are_needed_elsewhere(s3, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with pytest.raises(SinkRefused, match="no AWS credentials are found: give this process a role"):
        require_buckets(config_of(s3.place()))
    (tmp_path / "AWS_SHARED_CREDENTIALS_FILE").write_text(
        "[there]\naws_access_key_id = a\naws_secret_access_key = b\n"
    )
    monkeypatch.setenv("AWS_PROFILE", "there")
    place = s3.place()
    assert write(s3, sink_at(place), batch(shard(), 0, 2)) == ["stands"]
    assert s3.rows_in(place) == expected(s0=2)
