"""The judge convicts what is wrong, and only that."""

import json

from tests.peer import rows
from tests.peer.judge import Hold, Shard, holds, judge

PARENT, CHILD = Shard("orders", "shardId-0"), Shard("orders", "shardId-1")


def hold(worker, begun_s, *numbers, shard=PARENT, position=-2, confirmed=(), ended=False):
    seen = tuple((begun_s + 1 + n, number) for n, number in enumerate(numbers))
    return Hold(worker, shard, begun_s, position, seen, tuple(confirmed), ended)


def test_all_is_well_when_the_next_one_goes_on_after_the_checkpoint():
    found = [
        hold("a", 0, 1, 2, 3, confirmed=[(4.5, 3)]),
        hold("b", 9, 4, 5, position=3, confirmed=[(20.0, 1 << 256)]),
        hold("b", 20, 6, 7, shard=CHILD),
    ]
    verdict = judge({PARENT: [1, 2, 3, 4, 5], CHILD: [6, 7]}, found, {CHILD: [PARENT]})
    assert verdict.faults == []
    assert (verdict.put, verdict.doubled, verdict.edges) == (7, 0, 1)
    assert verdict.by_worker == {"a": 3, "b": 4}
    assert verdict.shards == {PARENT: (5, 5), CHILD: (2, 2)}


def test_what_is_read_again_after_a_death_is_counted_and_no_fault():
    found = [hold("a", 0, 1, 2, 3, confirmed=[(1.5, 1)]), hold("b", 9, 2, 3, position=1)]
    verdict = judge({PARENT: [1, 2, 3]}, found, {})
    assert verdict.faults == []
    assert verdict.doubled == 2
    assert verdict.overlap_s == 0


def test_two_workers_at_once_are_measured():
    verdict = judge({PARENT: [1, 2]}, [hold("a", 0, 1, 2), hold("b", 0.5, 1, 2, position=-2)], {})
    assert verdict.overlap_s == 0.5
    assert verdict.faults == []


def test_two_workers_at_once_beyond_the_failover_time_are_a_fault():
    longer = hold("a", 0, *range(1, 13))
    verdict = judge({PARENT: range(1, 13)}, [longer, hold("b", 0.9, 2)], {})
    assert verdict.faults == [f"{PARENT}: a and b read it at once for 10.1 s"]


def test_lost_and_unknown_records_are_faults():
    verdict = judge({PARENT: [1, 2], CHILD: [3]}, [hold("a", 0, 1, 9)], {})
    assert (verdict.lost, len(verdict.faults)) == (2, 3)


def test_a_record_before_a_later_one_or_before_the_position_is_a_fault():
    assert judge({PARENT: [1, 2]}, [hold("a", 0, 2, 1)], {}).disordered == 1
    assert judge({PARENT: [1, 2]}, [hold("a", 0, 1, 2, position=1)], {}).disordered == 1


def test_a_checkpoint_that_the_next_one_does_not_know_of_is_a_fault():
    found = [hold("a", 0, 1, 2, confirmed=[(3.5, 2)]), hold("b", 4, 2, position=1)]
    assert judge({PARENT: [1, 2]}, found, {}).reread == 1
    ended = [hold("a", 0, 1, confirmed=[(3.5, 1 << 256)], ended=True), hold("b", 4, position=1)]
    assert judge({PARENT: [1]}, ended, {}).reread == 1


def test_a_child_that_is_read_before_the_end_of_its_parent_is_a_fault():
    found = [hold("a", 0, 1, 2, 3), hold("b", 1, 4, shard=CHILD)]
    verdict = judge({PARENT: [1, 2, 3], CHILD: [4]}, found, {CHILD: [PARENT]})
    assert (verdict.out_of_lineage, len(verdict.faults)) == (1, 1)


def test_a_journal_is_a_hold(tmp_path):
    entries = [
        {"at": 1, "saw": "initialize", "stream": None, "shard": "s-0", "position": ["7", 0]},
        {"at": 2, "saw": "records", "stream": None, "records": [["8", 0, "k", "orders/1"]]},
        {"at": 3, "saw": "checkpoint", "stream": None},
        {"at": 4, "saw": "records", "stream": None, "records": [["9", 0, "k", "orders/2"]]},
        {"at": 5, "saw": "refused", "stream": None},
        {"at": 6, "saw": "shard_ended", "stream": None},
        {"at": 7, "saw": "checkpoint", "stream": None},
    ]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (tmp_path / "journal-1.jsonl").write_text(text + '{"at": 8, "sa')
    (tmp_path / "journal-2.jsonl").write_text("")
    (found,) = holds(tmp_path, "a")
    confirmed = ((3, 8), (7, 1 << 256))
    assert found == Hold("a", Shard("orders", "s-0"), 1, 7, ((2, 8), (4, 9)), confirmed, ended=True)


def test_rows_are_told_apart():
    row = {
        "leaseKey": {"S": "1:orders:17:shardId-0"},
        "leaseCounter": {"N": "4"},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": "TRIM_HORIZON"},
        "checkpointSubSequenceNumber": {"N": "0"},
        "startingHashKey": {"S": "0"},
        "endingHashKey": {"S": "9"},
        "streamName": {"S": "1:orders:17"},
        "shardId": {"S": "shardId-0"},
    }
    key = row["leaseKey"]["S"]
    assert rows.faults({key: row}, many=True) == []
    assert rows.faults({key: row}, many=False) == [
        f"{key}: shardId of type S",
        f"{key}: streamName of type S",
    ]
    wrong = row | {"leaseCounter": {"S": "4"}, "parentShardId": {"SS": ["1:orders:17:shardId-9"]}}
    assert len(rows.faults({key: wrong}, many=True)) == 2
    assert rows.faults({key: row | {"streamName": {"S": "1:orders:18"}}}, many=True)
    assert rows.lasting({key: row})[key].keys() == row.keys() - {
        *("leaseCounter", "ownerSwitchesSinceCheckpoint", "checkpoint"),
        "checkpointSubSequenceNumber",
    }
