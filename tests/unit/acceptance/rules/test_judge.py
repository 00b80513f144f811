"""The judge of acceptance runs: a truthful recording passes, and each planted fault is found."""

import copy
import json

import pytest

from kcl_mld.acceptance.rules.judge import CAUSE_WINDOW_S, END, judge
from kcl_mld.acceptance.rules.report_text import report_json, report_markdown

APP, SOURCE = "run-polling", "records"
PARENT, CHILD = "shardId-000000000000", "shardId-000000000001"
ACCOUNT = "123456789012"


def put(number, at, shard=PARENT, count=1, key="a"):
    sequence = str(1000 + number)
    put = {"what": "put", "at": at, "source": SOURCE, "key": key, "first": number, "count": count}
    return put | {"shard": shard, "sequence": sequence}


def child(what, at, worker, name, shard=PARENT, **more):
    who = {"reader": APP, "worker": worker, "child": name, "shard": shard}
    return {"what": what, "at": at, **who, **more}


def records(*numbers, key="a"):
    return [[str(1000 + number), 0, key, number] for number in numbers]


def stage(name, began, ended, outcome="passed", reason=""):
    said = {"outcome": outcome, "reason": reason}
    return {"what": "stage", "name": name, "began": began, "ended": ended, **said}


def metric(name, total, samples):
    figures = {"operation": "ProcessTask", "total": total, "samples": samples}
    return {"what": "metric", "reader": APP, "name": name, **figures}


def truthful():
    """w1 is killed at 13 after a checkpoint of record 1; w2 gets 2 again, then the split's child."""
    return [
        {"what": "run", "region": "eu-west-1", "is_local": True},
        {"what": "reader", "name": APP, "source": SOURCE},
        *(put(number, 10.0 + number) for number in range(4)),
        put(4, 20.0, CHILD),
        put(5, 21.0, CHILD, count=2),
        {"what": "shards", "source": SOURCE, "parents": {CHILD: [PARENT]}},
        child("began", 9.0, "w1", "c1", position=["TRIM_HORIZON", 0]),
        child("got", 11.5, "w1", "c1", records=records(0, 1)),
        child("confirmed", 12.0, "w1", "c1", position=["1001", 0]),
        child("got", 12.5, "w1", "c1", records=records(2)),
        {"what": "cause", "at": 8.0, "reader": APP, "cause": "joined", "worker": ""},
        {"what": "cause", "at": 13.0, "reader": APP, "cause": "killed", "worker": "w1"},
        child("began", 15.0, "w2", "c2", position=["1001", 0]),
        child("got", 15.5, "w2", "c2", records=records(2, 3)),
        child("confirmed", 16.0, "w2", "c2", position=["SHARD_END", 0]),
        child("began", 17.0, "w2", "c3", CHILD, position=["TRIM_HORIZON", 0]),
        child("got", 20.5, "w2", "c3", CHILD, records=records(4)),
        child("got", 21.5, "w2", "c3", CHILD, records=[["1005", 0, "a", 5], ["1005", 1, "a", 6]]),
        child("lost", 22.0, "w2", "c3", CHILD),
        stage("kill", 9.0, 20.0),
        stage("java", 20.0, 20.0, "not run", "not asked for"),
        stage("end", 20.0, 23.0),
        metric("RecordsProcessed", 5.0, 4.0),
        metric("KinesisDataFetcher.getRecords.Success", 7.0, 8.0),
        {"what": "requests", "by": "producer", "counts": {"PutRecords": 6}},
        {"what": "observed", "name": "seconds until a split was done", "value": 31.5},
        {"what": "cost", "estimated_usd": 0.03},
        {"what": "cleaned", "count": 4},
    ]


def changed(change):
    lines = copy.deepcopy(truthful())
    change(lines)
    return judge(lines)


def find(lines, what, **members):
    return next(
        line
        for line in lines
        if line["what"] == what and all(line[name] == value for name, value in members.items())
    )


def test_a_truthful_recording_passes():
    report = judge(truthful())
    assert report.faults == []
    assert report.passed
    figures = report.readers[APP]
    assert (figures.put, figures.received, figures.lost, figures.sightings) == (7, 7, 0, 8)
    assert (figures.children, figures.workers) == (3, 2)
    assert figures.twice == {"killed": 1}
    assert figures.metric == 5.0
    assert report.requests == {("producer", "PutRecords"): 6, (APP, "getRecords"): 8}
    assert report.observed["seconds until a split was done"] == 31.5
    assert report.observed["digits of a sequence number, at most"] == 4


def test_latency_is_that_of_records_put_during_a_stage_when_first_seen():
    killed, ended = judge(truthful()).latency
    assert (killed.stage, killed.records) == ("kill", 4)
    # 0 after 1.5 s, 1 after 0.5 s, 2 after 0.5 s, 3 after 2.5 s
    assert killed.seconds == (0.5, 2.5, 2.5, 2.5)
    assert (ended.stage, ended.records, ended.seconds) == ("end", 3, (0.5,) * 4)


def lose(lines):
    find(lines, "got", at=20.5)["records"].clear()


def lose_one_of_an_aggregate(lines):
    del find(lines, "got", at=21.5)["records"][1]


def invent(lines):
    find(lines, "got", at=20.5)["records"] += records(99)


def without_cause(lines):
    lines.remove(find(lines, "cause", cause="killed"))


def cause_of_another_worker(lines):
    find(lines, "cause", cause="killed")["worker"] = "w2"


def cause_too_long_ago(lines):
    for line in lines:
        if line.get("child") in ("c2", "c3") or line.get("shard") == CHILD:
            line["at"] += CAUSE_WINDOW_S
    find(lines, "stage", name="end")["ended"] += CAUSE_WINDOW_S


def checkpointed(lines):
    lines.append(child("confirmed", 12.8, "w1", "c1", position=["1002", 0]))


def twice_to_one_child(lines):
    find(lines, "got", at=15.5)["records"] = records(2, 3, 3)


def two_sequence_numbers(lines):
    find(lines, "got", at=20.5)["records"].append(["1007", 0, "a", 3])


def child_out_of_order(lines):
    find(lines, "got", at=15.5)["records"].reverse()


def two_children_out_of_order(lines):
    find(lines, "got", at=15.5)["records"].reverse()
    find(lines, "got", at=21.5)["records"].reverse()


def key_out_of_order(lines):
    find(lines, "got", at=20.5)["at"] = 22.5


def child_before_parent(lines):
    find(lines, "got", at=20.5)["at"] = 15.2


def began_before_a_checkpoint(lines):
    find(lines, "began", child="c2")["position"] = ["1000", 0]


def without_initialize(lines):
    lines.remove(find(lines, "began", child="c2"))


def leave_over(lines):
    lines.append({"what": "leftover", "kind": "table", "name": "run-polling"})


def fail_a_stage(lines):
    find(lines, "stage", name="kill").update(outcome="failed", reason="not within 9 s: a record")


def run_nothing(lines):
    for line in lines:
        if line["what"] == "stage":
            line["outcome"] = "not run"


def run_the_end_alone(lines):
    for line in lines:
        if line["what"] == "stage" and line["name"] != END:
            line["outcome"] = "not run"


def put_nothing(lines):
    lines[:] = [line for line in lines if line["what"] not in ("put", "shards", "got")]


def metric_too_low(lines):
    find(lines, "metric", name="RecordsProcessed")["total"] = 4.0


def metric_too_high(lines):
    find(lines, "metric", name="RecordsProcessed")["total"] = 10.0


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (lose, "1 records lost, the first: a/4"),
        (lose_one_of_an_aggregate, "1 records lost, the first: a/6"),
        (invent, "1 records that nobody put, such as a/99"),
        (without_cause, "1 given twice without a cause: a/2 to w1 and w2"),
        (cause_of_another_worker, "1 given twice without a cause: a/2 to w1 and w2"),
        (cause_too_long_ago, "1 given twice without a cause: a/2 to w1 and w2"),
        (checkpointed, "1 given twice without a cause: a/2 after it was checkpointed"),
        (twice_to_one_child, "1 given twice without a cause: a/3 twice to one child"),
        (two_sequence_numbers, "1 given twice without a cause: a/3 has two sequence numbers"),
        (child_out_of_order, f"a child was given a record after later ones: a/2 in {PARENT}"),
        (two_children_out_of_order, "a child was given a record after later ones: a/2"),
        (key_out_of_order, "1 out of the order of their key, the first: a/4"),
        (child_before_parent, f"{CHILD} was read before the end of its parent {PARENT}"),
        (began_before_a_checkpoint, f"w2 read {PARENT} again from before a checkpoint"),
        (without_initialize, f"a child of {PARENT} was given records before initialize"),
        (leave_over, "left over after the clean-up: table run-polling"),
        (fail_a_stage, "stage kill: not within 9 s: a record"),
        (run_nothing, "no stage has passed"),
        (run_the_end_alone, "no stage has passed"),
        (put_nothing, "nothing was put, so nothing is proven"),
        (metric_too_low, "CloudWatch has 4 processed records, children were given 8"),
        (metric_too_high, "CloudWatch has 10 processed records, children were given 8"),
    ],
)
def test_a_planted_fault_is_found(plant, fault):
    report = changed(plant)
    assert not report.passed
    assert any(fault in one for one in report.faults), report.faults


def end_early(lines):
    """As a run does that waits in vain for a lost record, or that is interrupted."""
    find(lines, "stage", name=END).update(outcome="failed", reason="not within 300 s")


def test_what_a_run_that_ended_early_has_not_read_is_not_called_lost():
    def stop_reading(lines):
        find(lines, "got", at=21.5)["records"].clear()
        end_early(lines)

    report = changed(stop_reading)
    assert not report.passed
    assert f"{APP}: 2 records were not read yet when the run ended early" in report.faults
    assert not any("lost" in fault for fault in report.faults)
    assert report.readers[APP].lost == 0


def lose_before_a_checkpoint(lines):
    """The last one of a shard, whose end was checkpointed."""
    find(lines, "got", at=15.5)["records"].pop()


@pytest.mark.parametrize(
    ("plant", "first"),
    [(lose, "a/4"), (lose_one_of_an_aggregate, "a/6"), (lose_before_a_checkpoint, "a/3")],
)
def test_a_record_behind_which_the_reader_is_is_lost_however_the_run_ended(plant, first):
    def plant_and_end(lines):
        plant(lines)
        # One more behind all of them, which is not read yet.
        lines.append(put(7, 22.0, CHILD))
        find(lines, "got", at=21.5)["records"].append(["1006", 0, "a", 9])
        lines.append(put(9, 21.9, CHILD) | {"sequence": "1006"})
        end_early(lines)

    report = changed(plant_and_end)
    assert f"{APP}: 1 records lost, the first: {first}" in report.faults
    assert f"{APP}: 1 records were not read yet when the run ended early" in report.faults
    assert report.readers[APP].lost == 1


def test_a_lost_record_is_found_though_the_producer_had_to_repeat_the_request():
    def repeat_and_lose(lines):
        lose(lines)
        lines.append({"what": "unsure", "source": SOURCE, "key": "a", "first": 4, "count": 1})

    assert f"{APP}: 1 records lost, the first: a/4" in changed(repeat_and_lose).faults


def test_records_at_the_checkpoint_of_a_child_may_be_counted_once_more():
    def count_again(lines):
        find(lines, "metric", name="RecordsProcessed")["total"] = 9.0

    assert changed(count_again).faults == []


def test_what_the_producer_does_not_know_is_no_loss_and_may_come_twice():
    def repeat(lines):
        unsure = {"what": "unsure", "source": SOURCE, "key": "a", "count": 2}
        lines += [unsure | {"first": 3}, unsure | {"first": 50}]
        find(lines, "got", at=15.5)["records"].append(["1100", 0, "a", 3])
        find(lines, "got", at=21.5)["records"].append(["1101", 0, "a", 50])
        find(lines, "metric", name="RecordsProcessed")["total"] = 7.0

    report = changed(repeat)
    assert report.faults == []
    assert report.readers[APP].twice == {"killed": 1, "put twice by the producer": 1}


def with_an_old_owner_that_goes_on(at):
    """w3 joins and takes the child shard; w2 is given a record that w3 has had already."""

    def change(lines):
        lines.append(put(7, 24.0, CHILD))
        lines.append({"what": "cause", "at": 23.0, "reader": APP, "cause": "joined", "worker": ""})
        lines.append(child("began", 24.0, "w3", "c4", CHILD, position=["1005", 1]))
        lines.append(child("got", 24.5, "w3", "c4", CHILD, records=records(7)))
        lines.append(child("got", at, "w2", "c3", CHILD, records=records(7)))
        find(lines, "metric", name="RecordsProcessed")["total"] = 7.0

    return change


def test_an_old_owner_may_go_on_for_a_while_but_not_for_long():
    report = changed(with_an_old_owner_that_goes_on(at=25.0))
    assert report.faults == []
    assert report.readers[APP].twice == {"killed": 1, "joined": 1}
    report = changed(with_an_old_owner_that_goes_on(at=24.0 + CAUSE_WINDOW_S))
    assert report.faults == [f"{APP}: 1 given twice without a cause: a/7 to w3 and w2"]


def with_a_lease_that_expires(lost, second=25.0):
    """The network is gone for a while: nothing is done to w2, and w3 takes the child shard."""

    def change(lines):
        lines.append(put(7, 24.0, CHILD))
        lines.append(child("got", 24.2, "w2", "c3", CHILD, records=records(7)))
        lines.append(child("began", 24.5, "w3", "c4", CHILD, position=["1005", 1]))
        lines.append(child("got", second, "w3", "c4", CHILD, records=records(7)))
        find(lines, "lost", child="c3")["at"] = lost
        find(lines, "metric", name="RecordsProcessed")["total"] = 7.0

    return change


def test_records_after_a_lost_lease_may_come_twice_and_are_counted():
    # The old owner learns it before the new one begins, or after it.
    for lost in (24.3, 31.0):
        report = changed(with_a_lease_that_expires(lost))
        assert report.faults == []
        assert report.readers[APP].twice == {"killed": 1, "lease lost": 1}
    assert "1 (killed), 1 (lease lost)" in report_markdown(report, ACCOUNT)


def test_a_lease_that_was_lost_before_or_long_after_explains_nothing():
    for lost in (24.1, 24.5 + CAUSE_WINDOW_S + 1):
        report = changed(with_a_lease_that_expires(lost))
        assert report.faults == [f"{APP}: 1 given twice without a cause: a/7 to w2 and w3"]


def test_an_order_that_the_service_gave_is_no_fault_but_is_observed():
    def swap(lines):
        find(lines, "put", first=2)["sequence"] = "1003"
        find(lines, "put", first=3)["sequence"] = "1002"
        find(lines, "got", at=12.5)["records"] = [["1002", 0, "a", 3]]
        find(lines, "got", at=15.5)["records"] = [["1002", 0, "a", 3], ["1003", 0, "a", 2]]

    report = changed(swap)
    assert report.faults == []
    name = "records of a key with a lower sequence number than one put before"
    assert report.observed[name] == 1


def test_changes_of_a_table_have_no_sequence_number_when_they_are_put():
    lines = [
        {"what": "reader", "name": APP, "source": "changes"},
        *(
            {"what": "put", "at": 1.0, "source": "changes", "key": "i", "first": n, "count": 1}
            for n in range(3)
        ),
        child("began", 0.5, "w", "c", position=["TRIM_HORIZON", 0]),
        child("got", 2.0, "w", "c", records=records(0, 1, 2, key="i")),
        stage("table-stream", 0.0, 3.0),
        stage("end", 3.0, 4.0),
    ]
    report = judge(lines)
    assert report.faults == []
    assert report.observed == {}
    # A change before one that was read is lost; whether a later one is, nobody knows yet.
    find(lines, "stage", name=END)["outcome"] = "failed"
    find(lines, "got")["records"] = records(1, key="i")
    assert f"{APP}: 1 records lost, the first: i/0" in judge(lines).faults
    assert f"{APP}: 1 records were not read yet when the run ended early" in judge(lines).faults
    find(lines, "got")["records"] = [*records(0, 1, key="i"), ["2000", 0, "i", 2]]
    find(lines, "got")["records"].insert(0, ["999", 0, "i", 2])
    assert "out of the order of their key" in " ".join(judge(lines).faults)


def test_reports_have_all_figures_and_mask_account_and_secrets():
    lines = truthful()
    secret = "AKIAABCDEFGHIJKLMNOP"
    arn = f"arn:aws:kinesis:eu-west-1:{ACCOUNT}:stream/x | {secret}"
    lines.append(stage("metrics", 23.0, 24.0, "failed", f"denied for {arn}"))
    lines.append({"what": "leftover", "kind": "table", "name": "t"})
    report = judge(lines)
    page = report_markdown(report, ACCOUNT)
    text = report_json(report, ACCOUNT)
    for one in (page, text):
        assert ACCOUNT not in one
        assert secret not in one
        assert "arn:aws:kinesis:eu-west-1:****:stream/x" in one
    described = json.loads(text)
    assert described["passed"] is False
    assert described["readers"][APP]["twice"] == {"killed": 1}
    assert described["latency_seconds"][0]["p50"] == 0.5
    assert {"by": APP, "operation": "getRecords", "calls": 8} in described["requests"]
    assert "# Acceptance run: FAILED" in page
    assert "proves nothing about AWS" in page
    assert "stream/x \\| ****" in page
    assert "| run-polling | 7 | 7 | 0 | 1 (killed) | 0 | 0 | 0 | 2 | 3 |" in page
    assert "* estimated cost: $0.03" in page
    assert "* resources deleted: 4; left over: table t" in page
    assert "| seconds until a split was done | 31.5 |" in page


def test_the_page_of_a_run_on_aws_that_passed():
    lines = [line for line in truthful() if line["what"] not in ("run", "cost", "cleaned", "cause")]
    find(lines, "got", at=12.5)["records"].clear()
    lines = [line for line in lines if line["what"] not in ("metric", "observed")]
    lines.append({"what": "observed", "name": "something new", "value": 1.0})
    page = report_markdown(judge(lines), ACCOUNT)
    assert "# Acceptance run: passed" in page
    assert "What is wrong" not in page
    assert "proves nothing" not in page
    assert "estimated" not in page
    assert "| something new | 1 |  |" in page


def test_lines_that_the_judge_does_not_need_change_nothing():
    lines = [{"what": "failure", "text": "before the first stage"}, *truthful()]
    assert judge(lines).faults == judge(truthful()).faults
