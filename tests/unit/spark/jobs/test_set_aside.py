"""Records of which a row-wise function fails: found, kept, and gone on without."""

import threading

import pytest

from kcl_mld.spark.errors import BatchFailed, RecordRefused, SparkUnreachable
from kcl_mld.spark.model import Position, Row, ShardBatch, ShardKey
from tests.unit.spark.jobs.test_engine import always, outcome
from tests.unit.spark.jobs.test_host_run import hand_in, once
from tests.unit.spark.shard_kit import WAIT_S

GONE = "Job aborted: Python worker exited unexpectedly (crashed)"
CAST = "[CAST_INVALID_INPUT] it cannot be cast. SQLSTATE: 22018"


def batch(shard, *numbers):
    rows = tuple(Row(Position(n), "key", b"x", None) for n in numbers)
    return ShardBatch(ShardKey("app", "stream", shard), None, Position(numbers[-1]), rows)


def setting_aside(bench, function=lambda df, ctx: df, **more):
    return once(bench, function, function__onError="deadletter", **more)


def failing(*bad):
    """Is to fail of some rows in this process, as a function that collects would."""

    def process(df, ctx):
        for row in df.rows:
            if row in bad:
                raise KeyError(row[1])
        return df

    return process


def test_a_record_of_which_a_job_fails_is_kept_and_the_others_are_committed_once(bench):
    b = setting_aside(bench)
    b.sink.poison = {("a", 3, 0): RuntimeError(CAST)}
    assert outcome(b.engine.submit(batch("a", 1, 2, 3, 4), always)) is None
    assert b.sink.rows == [("a", 1, 0), ("a", 2, 0), ("a", 4, 0)]
    assert b.sink.marks == {"a": Position(4)}
    assert list(b.letters.kept) == [("a", 3, 0)]
    assert "cannot be cast" in b.letters.kept["a", 3, 0]


def test_a_record_of_which_the_function_itself_fails_is_kept(bench):
    b = setting_aside(bench, failing(("a", 1, 0), ("a", 4, 0)))
    assert outcome(b.engine.submit(batch("a", 1, 2, 3, 4), always)) is None
    assert b.sink.rows == [("a", 2, 0), ("a", 3, 0)]
    assert sorted(b.letters.kept) == [("a", 1, 0), ("a", 4, 0)]
    assert len(b.sink.commits) == 1


def test_the_last_record_may_fail_and_the_mark_moves_over_it(bench):
    b = setting_aside(bench, failing(("a", 2, 0)))
    assert outcome(b.engine.submit(batch("a", 1, 2), always)) is None
    assert b.sink.marks == {"a": Position(2)}


def test_a_batch_of_nothing_but_failing_records_moves_the_mark(bench):
    b = setting_aside(bench, failing(("a", 1, 0)))
    assert outcome(b.engine.submit(batch("a", 1), always)) is None
    assert (b.sink.rows, b.sink.marks) == ([], {"a": Position(1)})


def test_records_of_several_shards_are_found(bench):
    b = setting_aside(bench, failing(("a", 1, 0), ("c", 1, 0)))
    assert [outcome(each) for each in hand_in(b, "a", "b", "c")] == [None] * 3
    assert sorted(b.letters.kept) == [("a", 1, 0), ("c", 1, 0)]
    assert b.sink.commits == [["busy"], ["a", "b", "c"]]


def test_letters_are_durable_before_the_marks_move(bench):
    b = setting_aside(bench, failing(("a", 1, 0)))
    seen = []
    commit_all = b.sink.commit_all
    b.sink.commit_all = lambda *args: seen.append(dict(b.letters.kept)) or commit_all(*args)
    assert outcome(b.engine.submit(batch("a", 1, 2), always)) is None
    assert [list(each) for each in seen] == [[("a", 1, 0)]]


def test_letters_that_cannot_be_kept_keep_the_batch_from_being_committed(bench):
    b = setting_aside(bench, failing(("a", 1, 0)), retry__attempts="2")
    b.letters.errors = [OSError("a full disk"), OSError("a full disk")]
    assert "a full disk" in str(outcome(b.engine.submit(batch("a", 1, 2), always)))
    assert b.sink.commits == []


def test_a_function_that_fails_without_any_record_fails_its_batch(bench):
    b = setting_aside(bench, lambda df, ctx: 1 / 0)
    error = outcome(b.engine.submit(batch("a", 1, 2), always))
    assert isinstance(error, BatchFailed)
    assert "fails without any record" in str(error)
    assert b.letters.kept == {}


def test_a_function_of_which_too_many_records_fail_fails_its_batch(bench):
    b = setting_aside(bench, failing(*(("a", n, 0) for n in range(1, 102))))
    error = outcome(b.engine.submit(batch("a", *range(1, 201)), always))
    assert "more than 100 records fail, so none is set aside" in str(error)
    assert b.letters.kept == {}
    assert b.sink.commits == []


def test_a_failure_of_no_record_by_itself_counts_as_a_try(bench):
    """It was a passing fault, or the function is not row-wise after all."""
    b = setting_aside(bench, retry__attempts="3")
    b.sink.write_errors = [RuntimeError(CAST)] * 3
    error = outcome(b.engine.submit(batch("a", 1, 2), always))
    assert "no record fails alone" in str(error)
    assert len(b.sink.jobs) == 3
    b.sink.write_errors = [RuntimeError(CAST)]
    assert outcome(b.engine.submit(batch("b", 1), always)) is None


def test_a_record_that_ends_its_worker_is_looked_for_once_no_try_is_left(bench, caplog):
    b = setting_aside(bench, retry__attempts="3")
    b.sink.poison = {("a", 3, 0): RuntimeError(GONE)}
    assert outcome(b.engine.submit(batch("a", 1, 2, 3, 4), always)) is None
    assert caplog.text.count("is repeated in") == 2
    assert list(b.letters.kept) == [("a", 3, 0)]
    assert "exited unexpectedly" in b.letters.kept["a", 3, 0]
    assert b.sink.rows == [("a", 1, 0), ("a", 2, 0), ("a", 4, 0)]


def test_a_worker_that_is_gone_while_tries_are_left_is_no_records_fault(bench):
    b = setting_aside(bench, retry__attempts="3")
    b.sink.write_errors = [RuntimeError(GONE)] * 2
    assert outcome(b.engine.submit(batch("a", 1, 2), always)) is None
    assert (b.letters.kept, len(b.sink.jobs)) == ({}, 3)


def test_a_record_whose_worker_was_gone_once_is_asked_again(bench):
    """The machine had no memory just then."""
    b = setting_aside(bench, failing(("a", 1, 0)))
    probe, alone = b.sink.run, []

    def run(frame):
        if list(frame.rows) == [("a", 2, 0)] and not alone:
            alone.append(1)
            raise RuntimeError(GONE)
        return probe(frame)

    b.sink.run = run
    assert outcome(b.engine.submit(batch("a", 1, 2), always)) is None
    assert alone
    assert list(b.letters.kept) == [("a", 1, 0)]


def test_a_record_that_cannot_be_decoded_is_not_the_functions(bench):
    b = setting_aside(bench)
    b.sink.poison = {("a", 1, 0): RuntimeError("kcl-mld: bad record <a at 1.0> SQLSTATE: P0001")}
    assert isinstance(outcome(b.engine.submit(batch("a", 1), always)), RecordRefused)
    assert b.letters.kept == {}


def test_a_server_that_goes_away_in_the_search_is_no_records_fault(bench):
    b = setting_aside(bench, failing(("a", 1, 0)))
    errors = [SparkUnreachable("gone")]
    probe = b.sink.run
    b.sink.run = lambda frame: probe(frame) if not errors else raise_once(errors)
    assert outcome(b.engine.submit(batch("a", 1, 2), always)) is None
    assert list(b.letters.kept) == [("a", 1, 0)]


def raise_once(errors):
    raise errors.pop()


def test_a_shard_that_is_lost_in_the_search_takes_its_records_with_it(bench):
    gone = threading.Event()
    begun = []

    def process(df, ctx):
        if len(begun) > 2:
            gone.set()
        begun.append(ctx.count)
        return failing(("a", 1, 0))(df, ctx)

    b = setting_aside(bench, process)
    one, two = hand_in(b, "a", "b", fences={"a": lambda: not gone.is_set()}.items())
    assert "the shard is lost" in str(outcome(one))
    assert outcome(two) is None
    assert b.sink.commits[1:] == [["b"]]
    assert b.letters.kept == {}


def test_a_search_that_takes_too_long_fails_the_batch(bench):
    waits = threading.Event()

    def process(df, ctx):
        if 0 < ctx.count < 4:
            waits.wait(WAIT_S)
        return failing(("a", 1, 0))(df, ctx)

    b = setting_aside(bench, process, batch__timeout="1s")
    b.sessions.interrupt = lambda tag: waits.set()
    error = outcome(b.engine.submit(batch("a", 1, 2, 3, 4), always))
    assert "were not found within spark.batch.timeout" in str(error)
    assert b.sink.commits == []


@pytest.mark.parametrize("lost", [True, False])
def test_a_try_after_the_search_keeps_the_letters_again_and_finds_nothing_new(bench, lost):
    b = setting_aside(bench, failing(("a", 1, 0)))
    b.sink.commit_errors = [OSError("no answer")] if lost else []
    assert outcome(b.engine.submit(batch("a", 1, 2), always)) is None
    assert list(b.letters.kept) == [("a", 1, 0)]
    assert b.sink.rows == [("a", 2, 0)]
