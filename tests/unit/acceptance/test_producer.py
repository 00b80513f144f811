"""The producer of acceptance runs, before a stream that takes, refuses or fails."""

import threading

import pytest
from botocore.exceptions import EndpointConnectionError

from kcl_mld.acceptance import producer
from kcl_mld.acceptance.producer import Producer
from kcl_mld.acceptance.recording import RunRecording
from kcl_mld.retrieval.rules.deaggregate import deaggregate


class Stream:
    """Answers what ``behave`` says of (request number, index of the record); keeps what it took."""

    def __init__(self, behave=lambda request, index: None, requests=4):
        self.behave = behave
        self.requests = requests
        self.asked = []
        self.taken = []
        self.done = threading.Event()
        self.retries = 0

    def put_records(self, StreamName, Records):  # noqa: N803 - of boto3
        number = len(self.asked)
        self.asked.append([record["PartitionKey"] for record in Records])
        if number >= self.requests:
            self.done.set()
        results = []
        for index, record in enumerate(Records):
            error = self.behave(number, index)
            if isinstance(error, Exception):
                raise error
            if error:
                results.append({"ErrorCode": error})
                continue
            self.taken.append(record)
            results.append({"ShardId": "shard-0", "SequenceNumber": str(len(self.taken))})
        return {"Records": results, "ResponseMetadata": {"RetryAttempts": self.retries}}


class Spending:
    def __init__(self):
        self.records = 0

    def note_put(self, records, data_bytes):
        assert data_bytes > 80 * records
        self.records += records


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setattr(producer, "_THROTTLED_PAUSE_S", 0.001)

    def make(stream):
        recording = RunRecording(tmp_path / "recording.jsonl")
        one = Producer(stream, "s", Spending(), recording)
        one.pause_s = 0.001
        return one, recording

    return make


def run(one, stream):
    one.start()
    assert stream.done.wait(60)
    one.stop()
    one.stop()


def numbers(stream):
    """User records by key, in the order in which the stream has them."""
    found = {}
    for record in stream.taken:
        for user in deaggregate(record["Data"], record["PartitionKey"]).records:
            number = int(user.data.split(b'"n": ')[1].split(b",")[0])
            found.setdefault(user.partition_key, []).append(number)
    return found


def puts(recording):
    found = {}
    for line in recording.lines():
        if line["what"] == "put":
            of_key = found.setdefault(line["key"], [])
            of_key += range(line["first"], line["first"] + line["count"])
    return found


def test_numbers_of_each_key_go_up_by_one_in_plain_records_and_aggregates(made):
    stream = Stream()
    one, recording = made(stream)
    run(one, stream)
    found = numbers(stream)
    assert len(found) == 16
    assert all(of_key == list(range(len(of_key))) for of_key in found.values())
    assert puts(recording) == found
    assert one.taken == {(key, number) for key in found for number in found[key]}
    counts = {line["count"] for line in recording.lines() if line["what"] == "put"}
    assert counts == {1, 5}
    (requests,) = [line for line in recording.lines() if line["what"] == "requests"]
    assert requests["counts"] == {"PutRecords": len(stream.asked)}


def test_what_is_throttled_is_put_again_before_later_records_of_its_key(made):
    refused = {(1, 0), (1, 3), (2, 0)}
    stream = Stream(lambda request, index: "Throttled" if (request, index) in refused else None)
    one, recording = made(stream)
    run(one, stream)
    found = numbers(stream)
    assert all(of_key == list(range(len(of_key))) for of_key in found.values())
    assert puts(recording) == found
    assert stream.asked[2][0] == stream.asked[1][0]
    assert all(len(set(keys)) == len(keys) for keys in stream.asked)


def test_of_a_failed_request_nobody_knows_what_was_taken(made):
    lost = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    stream = Stream(lambda request, index: lost if request == 1 else None)
    one, recording = made(stream)
    run(one, stream)
    unsure = [line["key"] for line in recording.lines() if line["what"] == "unsure"]
    assert sorted(unsure) == sorted(stream.asked[1])
    assert one.failure is None


def test_what_the_client_repeated_may_be_there_twice(made):
    stream = Stream()
    stream.retries = 1
    one, recording = made(stream)
    run(one, stream)
    lines = list(recording.lines())
    said = [sum(line["what"] == what for line in lines) for what in ("put", "unsure")]
    assert said[0] == said[1] > 0


def test_a_stream_that_always_fails_ends_the_producer(made):
    lost = EndpointConnectionError(endpoint_url="http://127.0.0.1:1")
    stream = Stream(lambda request, index: lost, requests=19)
    one, _ = made(stream)
    run(one, stream)
    assert one.failure.startswith("PutRecords: ")
    assert len(stream.asked) == 20
