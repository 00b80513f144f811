"""The order of stages, and what becomes of the later ones when one fails; no process is started."""

import json

import pytest

from kcl_mld.acceptance import proof
from kcl_mld.acceptance.budget import BudgetExhausted
from kcl_mld.acceptance.fleet import RunFleet, StageFailed, WorkerProcess
from kcl_mld.acceptance.options import Names, Options, Stage
from kcl_mld.acceptance.proof import run_proof
from kcl_mld.acceptance.recording import RunRecording
from kcl_mld.acceptance.table_writer import write_changes
from kcl_mld.errors import Unreachable


class Budget:
    left_s = 300.0

    def sleep(self, seconds):
        raise AssertionError("nothing is waited for")

    def note_table_write(self, items):
        assert items == 1


class Resources:
    """A stream with one split behind it."""

    def data(self, service):
        return None

    def call(self, service, operation, **request):
        assert (service, operation) == ("kinesis", "list_shards")
        if "NextToken" not in request:
            return {"Shards": [{"ShardId": "s0"}], "NextToken": "more"}
        of_s0 = {"ShardId": "s1", "ParentShardId": "s0"}
        merged = {"ShardId": "s2", "ParentShardId": "s0", "AdjacentParentShardId": "s1"}
        return {"Shards": [of_s0, merged]}


class IdleProducer:
    failure = None
    running = False

    def __init__(self, *_):
        pass

    def start(self):
        IdleProducer.running = True

    def stop(self):
        IdleProducer.running = False


ALL = frozenset(Stage)
REAL_ROLLOVERS = proof._Proof.rollovers


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs with these things done by stages; the stages as written down."""
    monkeypatch.setattr(proof, "Producer", IdleProducer)

    def do(actions, stages=ALL, left_s=300.0, jars="lib"):
        for name in ("poll", "reshard", "kill", "hand_off", "fan_out", "java"):
            monkeypatch.setattr(proof._Proof, name, actions.get(name, lambda self: None))
        for name in ("table_stream", "spark", "rollovers", "end", "metrics"):
            monkeypatch.setattr(proof._Proof, name, actions.get(name, lambda self: None))
        options = Options(
            region="us-east-1",
            account="123456789012",
            names=Names(prefix="acc", run_id="0" * 10),
            limit_s=300,
            limit_usd=1,
            stages=stages,
            directory=tmp_path,
            java="java",
            jars=jars,
        )
        budget = Budget()
        budget.left_s = left_s
        recording = RunRecording(tmp_path / "recording.jsonl")
        said = []
        try:
            run_proof(options, Resources(), budget, recording, said.append)
        finally:
            assert not IdleProducer.running
            do.lines = list(recording.lines())
            do.said = said
        return {
            line["name"]: (line["outcome"], line["reason"])
            for line in do.lines
            if line["what"] == "stage"
        }

    return do


def begin_polling(self):
    self._polling = self._fleet("acc-polling", {})


def test_all_stages_run_in_order_and_the_family_of_shards_is_noted(run):
    found = run({"poll": begin_polling}, left_s=10_000.0)
    assert list(found) == [
        *("polling", "resharding", "kill", "hand-off", "fan-out", "java"),
        *("table-stream", "spark", "rollovers", "end", "metrics"),
    ]
    assert {outcome for outcome, _ in found.values()} == {"passed"}
    (family,) = [line["parents"] for line in run.lines if line["what"] == "shards"]
    assert family == {"s1": ["s0"], "s2": ["s0", "s1"]}
    assert run.said[:2] == ["polling: begins", "polling: passed"]


def test_what_was_not_asked_for_or_cannot_be_is_not_run_with_its_reason(run):
    found = run({}, stages=ALL - {Stage.POLLING, Stage.FAN_OUT}, jars=None)
    assert found["polling"] == ("not run", "not asked for")
    assert found["kill"] == ("not run", "needs the stage polling")
    assert found["metrics"] == ("not run", "needs the stage polling or fan-out")
    assert found["rollovers"][1] == "the limit of time leaves nothing for it: use --hours"
    assert found["java"] == ("not run", "needs --java and --jars")
    assert found["end"] == ("passed", "")


@pytest.mark.parametrize(
    "failure", [StageFailed("not within 180 s: x"), Unreachable("ListShards", "no route")]
)
def test_after_a_failed_stage_the_rest_is_not_run(run, failure):
    def fail(self):
        raise failure

    found = run({"poll": begin_polling, "reshard": fail})
    assert found["resharding"] == ("failed", str(failure))
    assert found["kill"] == ("not run", "resharding has failed")
    assert found["metrics"] == ("not run", "resharding has failed")


def test_a_library_that_fails_fails_its_stage_and_leaves_a_traceback(run):
    def read_table(self):
        raise OSError("503 Slow Down AKIAABCDEFGHIJKLMNOP")

    found = run({"poll": begin_polling, "spark": read_table})
    assert found["spark"] == ("failed", "OSError: 503 Slow Down AKIAABCDEFGHIJKLMNOP")
    assert found["end"] == ("not run", "spark has failed")
    (text,) = [line["text"] for line in run.lines if line["what"] == "traceback"]
    assert "in read_table" in text
    assert "503 Slow Down ****" in text


def test_workers_beside_java_send_no_metrics_that_could_be_read_back(run):
    def begin_java(self):
        self._java = self._fleet("acc-java", {})

    found = run({"java": begin_java}, stages={Stage.JAVA, Stage.METRICS})
    assert found["java"] == ("passed", "")
    assert found["metrics"] == ("not run", "needs the stage polling or fan-out")


def test_a_used_up_budget_ends_the_run_and_is_written_down(run):
    def exhaust(self):
        raise BudgetExhausted("the limit of money is reached: $1.00")

    with pytest.raises(BudgetExhausted):
        run({"poll": exhaust})
    (stage,) = [line for line in run.lines if line["what"] == "stage"]
    assert (stage["outcome"], stage["reason"]) == (
        "failed",
        "the limit of money is reached: $1.00",
    )
    assert any(line["what"] == "shards" for line in run.lines)


def test_each_change_of_a_table_is_written_down_and_what_fails_is_unsure(tmp_path):
    class Table:
        def __init__(self):
            self.writes = []

        def put_item(self, TableName, Item):  # noqa: N803 - of boto3
            if len(self.writes) == 7:
                raise proof.BotoCoreError
            self.writes.append((Item["id"]["S"], Item["n"]["N"]))

    class Sleepless(Budget):
        def sleep(self, seconds):
            pass

    recording = RunRecording(tmp_path / "recording.jsonl")
    table = Table()
    with pytest.raises(StageFailed, match="a write to changes"):
        write_changes(table, "changes", Sleepless(), recording)
    lines = list(recording.lines())
    puts = [(line["key"], str(line["first"])) for line in lines if line["what"] == "put"]
    assert puts == table.writes
    assert [line["key"] for line in lines if line["what"] == "unsure"] == ["item-2"]


class Dead:
    """A process that ended."""

    pid = 2**22 + 1  # above every real one

    def __init__(self, code):
        self.returncode = code

    def poll(self):
        return self.returncode

    def communicate(self):
        return b"", b""


def test_a_worker_that_ends_by_itself_fails_the_stage_with_its_last_words(tmp_path):
    recording = RunRecording(tmp_path / "recording.jsonl")
    log = tmp_path / "log"
    log.write_text("first\nno such stream\n")
    with RunFleet("app", "records", {}, tmp_path, Budget(), recording) as fleet:
        fleet.workers.append(WorkerProcess("w1", Dead(4), Dead.pid, log))
        with pytest.raises(StageFailed, match="w1 ended with 4: no such stream"):
            fleet.until(lambda: False, "something", 60)


def test_what_does_not_happen_in_time_fails_the_stage(tmp_path):
    recording = RunRecording(tmp_path / "recording.jsonl")
    with (
        RunFleet("app", "records", {}, tmp_path, Budget(), recording) as fleet,
        pytest.raises(StageFailed, match="not within 0 s: w1 is given records"),
    ):
        fleet.until(lambda: False, "w1 is given records", 0)


def test_what_children_wrote_is_counted_and_added_to_the_recording(tmp_path):
    recording = RunRecording(tmp_path / "recording.jsonl")
    who = {"reader": "app", "worker": "w1", "child": "c", "shard": "s0"}
    got = {"what": "got", "at": 5.0, **who, "records": [["1", 0, "a", 0], ["2", 0, "a", 1]]}
    with RunFleet("app", "records", {}, tmp_path, Budget(), recording) as fleet:
        worker = WorkerProcess("w1", Dead(0), Dead.pid, tmp_path / "log")
        fleet.workers.append(worker)
        path = tmp_path / "children-app" / "c.jsonl"
        path.write_text(json.dumps(got) + "\n" + '{"what": "go')
        wanted = {("a", 0), ("a", 1), ("a", 2)}
        assert not fleet.has(wanted)
        assert fleet.has(wanted - {("a", 2)})
        assert fleet.shards_of(worker, 4.0) == {"s0"}
        assert fleet.shards(5.0) == set()
        assert fleet.given_to_stopped() == 2
    assert got in list(recording.lines())
    assert len(list(recording.lines())) == 2


@pytest.mark.parametrize(
    ("steps", "outcome"),
    [(4, ("passed", "")), (2, ("failed", "never: app goes on reading"))],
    ids=["reads", "stops"],
)
def test_rollovers_last_until_25_minutes_are_left_or_a_reader_stops(run, steps, outcome):
    given = []

    class Passing(Budget):
        left_s = 25 * 60 + 40.0

        def sleep(self, seconds):
            self.left_s -= 10.0

    class Readers:
        reader = "app"

        def shards(self, since_s):
            return {"s0"} if len(given) <= steps else set()

        def until(self, condition, what, timeout_s):
            given.append(what)
            if not condition():
                raise StageFailed(f"never: {what}")

    def rollovers(self):
        self._budget, self._polling = Passing(), Readers()
        REAL_ROLLOVERS(self)
        assert self.producer.pause_s > 1

    found = run({"poll": begin_polling, "rollovers": rollovers}, left_s=10_000.0)
    assert found["rollovers"] == outcome
    assert len(given) == min(4, steps + 1)
