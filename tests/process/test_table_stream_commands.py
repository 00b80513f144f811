"""Commands beside a worker that reads the stream of a table of DynamoDB Local."""

from __future__ import annotations

import json
import sys

import pytest

from tests.process.daemon import JOURNALING, wait_until
from tests.process.table_streams import keys_of, records_of, wait_for_records
from tests.process.test_explain import properties_of, typed

#: Ends at the change of the item ``1``; the environment heals it.
POISONED = """
import base64, json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    for record in message.get("records", ()):
        change = json.loads(base64.b64decode(record["data"]))
        number = change["dynamodb"]["Keys"]["pk"]["S"]
        if number == "1" and "HEALED" not in os.environ:
            os._exit(3)
        print("processed", number, record["sequenceNumber"], file=sys.stderr, flush=True)
        last = record["sequenceNumber"]
    if message["action"] in ("processRecords", "shutdownRequested"):
        number = last if message["action"] == "processRecords" else None
        print(json.dumps({"action": "checkpoint", "sequenceNumber": number}), flush=True)
        sys.stdin.readline()
    print(json.dumps({"action": "status", "responseFor": message["action"]}), flush=True)
"""


@pytest.fixture
def new_table(new_table):
    """Makes a table whose workers renew their leases often."""

    def make(name):
        table = new_table(name)
        table.app.properties["failoverTimeMillis"] = "5000"
        return table

    return make


def file_of(table, **more):
    """The file of an operator."""
    return str(properties_of(table.app, **{**table.app.properties, **more}))


def command(table, *words, code=0, environment=None, **more):
    """What a command prints; FILE stands for the operator's file."""
    file = file_of(table, **more)
    arguments = [file if word == "FILE" else word for word in words]
    done = typed(table.app, *arguments, **(environment or {}))
    assert done.returncode == code, done.stdout + done.stderr
    return done


def document(table, *words, **more):
    return json.loads(command(table, *words, "-o", "json", **more).stdout)


def integer(number):
    """As a program writes it that made an integer of it."""
    return str(int(number))


def reset(table, shard_id, *words, code=0):
    """What becomes of the checkpoint of a shard."""
    answer = document(table, "leases", "reset", "FILE", shard_id, *words, code=code)
    (lease,) = answer["leases"]
    return lease


def test_numbers_may_lack_their_leading_zeros(new_table):
    table = new_table("Zeros")
    table.put(4)
    run = table.app.start(executable=(sys.executable, str(JOURNALING), "3"))
    wait_for_records(run, 4)
    (shard,), (numbers,) = table.shards(), table.numbers()
    assert numbers[0].startswith("0")
    wait_until(lambda: table.checkpoints().get(shard) == numbers[3], "a checkpoint")
    for third in (numbers[2], integer(numbers[2])):
        found = [
            reset(table, shard, *words)["after"]["checkpoint"]
            for words in (
                ("--at-sequence-number", third),
                ("--after-sequence-number", third),
                ("--after-sequence-number", f"{third}/0"),
            )
        ]
        assert found == [numbers[1], numbers[2], numbers[2]]
    wrong = reset(table, shard, "--at-sequence-number", integer(int(numbers[3]) + 1), code=5)
    assert "or none any more" in wrong["why"]

    copy = json.loads(command(table, "leases", "export", "FILE").stdout)
    copy["leases"][0]["checkpoint"] = integer(numbers[0])
    path = table.app.folder / "copy.json"
    path.write_text(json.dumps(copy))
    moved = reset(table, shard, "--from", str(path), "--execute")
    assert (moved["way"], moved["done"]) == ("ask", True)
    assert moved["after"]["checkpoint"] == numbers[0]
    wait_for_records(run, 7)
    assert keys_of(run) == [0, 1, 2, 3, 1, 2, 3]
    wait_until(lambda: table.checkpoints()[shard] == numbers[3], "the last checkpoint")
    assert run.stop() == 0

    # A row without the zeros, as of a program beside a worker that stores what it is given.
    table.app.change(shard, checkpoint=integer(numbers[1]))
    peeked = document(table, "records", "peek", "FILE", shard)
    assert [one["sequence_number"] for one in peeked["records"]] == numbers[2:]
    assert peeked["behind_s"] is None  # nobody says where the tip is
    shown = command(table, "records", "peek", "FILE", shard).stdout
    assert "1 read beside the worker; 2 processes may read a shard at a time" in shown
    again = table.app.start(executable=(sys.executable, str(JOURNALING), "3"), worker="w2")
    wait_for_records(again, 2)
    assert [number for number, *_ in records_of(again)] == numbers[2:]
    assert again.stop() == 0


def test_dead_letters_are_replayed_from_the_stream_until_their_records_expire(new_table, tmp_path):
    table = new_table("Letters")
    child, letters = tmp_path / "child.py", tmp_path / "letters"
    child.write_text(POISONED)
    contained = {
        "executableName": f"{sys.executable} {child}",
        "childFailurePolicy": "deadletter",
        "onFailureDestination": f"file:{letters}",
        "childRestartBackoffMillis": "10",
        "childRestartMaxAttempts": "1",
    }
    table.put(3)
    run = table.app.start(**contained)
    ((_, number, last),) = table.numbers()
    wait_until(lambda: last in table.checkpoints().values(), "a checkpoint")
    assert run.stop() == 0
    (path,) = letters.iterdir()
    letter = json.loads(path.read_text())
    assert "records" not in letter
    assert (letter["firstSequenceNumber"], letter["recordCount"]) == (number, 1)

    listed = document(table, "dead-letters", "list", "FILE", **contained)["letters"]
    assert [one["firstSequenceNumber"] for one in listed] == [number]
    replay = ("dead-letters", "replay", "FILE", letter["id"][:12])
    healed = {"environment": {"HEALED": "1"}, **contained}
    assert command(table, *replay, **healed).stdout == f"{letter['id']}: processed\n"
    for one in ("firstSequenceNumber", "lastSequenceNumber"):
        letter[one] = integer(letter[one])
    path.write_text(json.dumps(letter))
    done = command(table, *replay, **healed)
    assert done.stdout == f"{letter['id']}: processed\n"
    assert f"processed 1 {number}" in done.stderr

    table.control(ACTION="DILATE_TIME", HOURS="25")
    done = command(table, *replay, code=1, **healed)
    assert "failed: the stream does not have its records any more" in done.stdout


def errors_of(run):
    """Messages of the log from ERROR on."""
    entries = [json.loads(line) for line in run.output.splitlines() if line.startswith("{")]
    return [one["msg"] for one in entries if one["level"] in {"ERROR", "CRITICAL"}]


def test_a_disabled_stream_is_read_to_its_end_and_a_restart_is_quiet(new_table):
    table = new_table("Disabled")
    table.put(2)
    run = table.app.start(executable=(sys.executable, str(JOURNALING), "3"))
    wait_for_records(run, 2)
    assert document(table, "explain", "FILE")["fleet"] == []
    table.put(2)
    for is_enabled in (False, True):
        specification = {"StreamEnabled": is_enabled}
        if is_enabled:
            specification["StreamViewType"] = "KEYS_ONLY"
        table.dynamodb.update_table(TableName=table.name, StreamSpecification=specification)
    newest = table.dynamodb.describe_table(TableName=table.name)["Table"]["LatestStreamArn"]
    assert newest != table.arn
    wait_for_records(run, 4)
    (shard,) = table.shards()
    wait_until(lambda: table.checkpoints()[shard] == "SHARD_END", "the end of the stream")
    run.wait_for_log("it was disabled")
    (error,) = errors_of(run)
    assert (
        f"the table's newest stream is {newest}: a worker with an applicationName of its" in error
    )

    told = document(table, "explain", "FILE", code=7)
    (found,) = told["fleet"]
    assert (found["verdict"], found["severity"]) == ("STREAM_DISABLED", "warning")
    assert newest in found["cause"]
    assert [one["verdict"] for one in told["shards"]] == ["FINISHED"]
    assert run.stop() == 0

    again = table.app.start(executable=(sys.executable, str(JOURNALING), "3"), worker="w2")
    again.wait_for_log("it was disabled")
    wait_until(
        lambda: document(table, "explain", "FILE", code=7)["facts"][1].startswith("Leader: w2"),
        "w2 leads",
    )
    assert again.stop() == 0
    assert len(errors_of(again)) == 1
    assert records_of(again) == []
    assert table.checkpoints() == {shard: "SHARD_END"}


def test_doctor_says_what_is_wrong_with_a_stream_that_is_not_there(new_table):
    table = new_table("Doctored")

    def judged(code, **more):
        found = document(table, "doctor", "FILE", code=code, **more)["checks"]
        (check,) = [one for one in found if one["subject"].startswith("stream ")]
        return check

    assert judged(0)["severity"] == "ok"
    gone = judged(1, streamName=table.arn.replace("Doctored", "NeverMade"))
    assert gone["text"].startswith("the stream does not exist (DescribeStream: ResourceNotFound")
    assert "enable its stream" in gone["do"]

    table.dynamodb.create_table(
        TableName="Streamless",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    arn = table.arn.partition("/stream/")[0].replace("Doctored", "Streamless")
    none = judged(1, streamName=None, multiStream="true", streams=arn)
    assert "the table has no stream" in none["text"]
    assert "enable its stream" in none["do"]

    table.dynamodb.delete_table(TableName="Doctored")  # its stream can be read for a day
    deleted = judged(0)
    assert deleted["severity"] == "warning"
    assert "DISABLED" in deleted["text"]
    assert "no newer stream of the table is known" in deleted["text"]


def test_a_table_stream_has_no_consumers_and_no_tips(new_table):
    table = new_table("NoConsumers")
    for words in (("list", "FILE"), ("deregister", "FILE", "somebody")):
        done = command(table, "consumers", *words, code=2)
        assert "DynamoDB Streams has no enhanced fan-out" in done.stderr
    table.app.create_table()
    done = command(table, "leases", "list", "FILE", "--tip", "--once")
    assert "--tip reads nothing" in done.stderr


def steered(table, *words, code=0):
    """What becomes of the one lease that a command changes."""
    (lease,) = document(table, "leases", *words, "--execute", code=code)["leases"]
    return lease


def test_leases_are_paused_released_and_reset_beside_a_living_worker(new_table):
    table = new_table("Steered")
    table.put(3)
    run = table.app.start(executable=(sys.executable, str(JOURNALING), "3"))
    wait_for_records(run, 3)
    (shard,) = table.shards()

    def wait_for_checkpoint():
        last = table.numbers()[-1][-1]
        wait_until(lambda: last in table.checkpoints().values(), "a checkpoint of the last record")

    wait_for_checkpoint()
    assert steered(table, "pause", "FILE", shard, "--for", "PT10M")["done"]
    table.put(2)
    found = reset(table, shard, "--to-latest", "--execute")
    assert found["after"]["checkpoint"] == table.numbers()[0][-1]
    assert steered(table, "resume", "FILE", shard)["done"]
    table.put(1)
    wait_for_records(run, 4)
    assert keys_of(run) == [0, 1, 2, 5]

    wait_for_checkpoint()
    assert reset(table, shard, "--to-trim-horizon", "--execute")["done"]
    wait_for_records(run, 10)
    assert keys_of(run)[4:] == [0, 1, 2, 3, 4, 5]
    wait_for_checkpoint()
    assert reset(table, shard, "--rewind", "PT1H", "--execute")["done"]
    wait_for_records(run, 16)
    wait_for_checkpoint()
    assert steered(table, "release", "FILE", shard)["done"]
    table.put(1)
    wait_for_records(run, 17)

    table.control(ACTION="ROLLOVER")
    table.put(2)
    wait_for_records(run, 19)
    wait_for_checkpoint()
    refused = document(
        table, "leases", "reset", "FILE", shard, "--to-trim-horizon", "--execute", code=5
    )
    assert "renews it" in str(refused["leases"])
    assert run.stop() == 0
    moved = document(table, "leases", "reset", "FILE", shard, "--to-trim-horizon", "--execute")
    assert [(one["lease"], one["done"]) for one in moved["leases"]] == [
        (one, True) for one in table.shards()
    ]
    again = table.app.start(executable=(sys.executable, str(JOURNALING), "3"), worker="w2")
    wait_for_records(again, 9)
    assert keys_of(again) == list(range(9))
    assert again.stop() == 0
