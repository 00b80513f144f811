"""Statistic sets, dimensions and the queue of metrics."""

from __future__ import annotations

from kcl_mld.observe.rules.metric_set import MetricKey, MetricQueue, StatisticSet, dimensions_of

PAIRS = (("Operation", "ProcessTask"), ("ShardId", "s"), ("WorkerIdentifier", None))


def key(name, shard="s"):
    return MetricKey(name, (("Operation", "ProcessTask"), ("ShardId", shard)))


def test_a_set_knows_sum_extremes_and_count():
    values = StatisticSet("Count")
    for value in (3.0, -1.0, 4.0):
        values.add(value)
    assert (values.count, values.total, values.minimum, values.maximum) == (3, 6.0, -1.0, 4.0)


def test_a_datum_is_what_cloudwatch_takes():
    values = StatisticSet("Bytes")
    values.add(7)
    assert key("DataBytesProcessed").datum(values) == {
        "MetricName": "DataBytesProcessed",
        "Dimensions": [
            {"Name": "Operation", "Value": "ProcessTask"},
            {"Name": "ShardId", "Value": "s"},
        ],
        "StatisticValues": {"SampleCount": 1.0, "Sum": 7.0, "Minimum": 7.0, "Maximum": 7.0},
        "Unit": "Bytes",
    }


def test_absent_dimensions_are_left_out_and_the_rest_is_sorted():
    assert dimensions_of(reversed(PAIRS), None) == (("Operation", "ProcessTask"), ("ShardId", "s"))
    assert dimensions_of(PAIRS, ("ALL",)) == (("Operation", "ProcessTask"), ("ShardId", "s"))
    assert dimensions_of((("Operation", ""),), None) == ()


def test_the_operation_stays_whatever_is_enabled():
    assert dimensions_of(PAIRS, ("WorkerIdentifier",)) == (("Operation", "ProcessTask"),)
    assert dimensions_of(PAIRS, ("ShardId",)) == (("Operation", "ProcessTask"), ("ShardId", "s"))
    assert dimensions_of(PAIRS, ()) == (("Operation", "ProcessTask"),)


def test_the_same_key_accumulates_in_place():
    queue = MetricQueue(10)
    assert queue.add(key("Time"), 1, "Milliseconds")
    assert queue.add(key("Time"), 3, "Milliseconds")
    (datum,) = queue.pop_data(10, 10_000)
    assert datum["StatisticValues"]["Sum"] == 4.0
    assert queue.pop_data(10, 10_000) == []


def test_a_full_queue_refuses_new_keys_only():
    queue = MetricQueue(1)
    assert queue.add(key("Time"), 1, "Milliseconds")
    assert not queue.add(key("Success"), 1, "Count")
    assert queue.add(key("Time"), 1, "Milliseconds")
    assert len(queue) == 1


def test_another_unit_is_refused():
    queue = MetricQueue(2)
    assert queue.add(key("Time"), 1, "Milliseconds")
    assert not queue.add(key("Time"), 1, "Count")


def test_a_request_is_bounded_in_data_and_bytes():
    queue = MetricQueue(100)
    for number in range(5):
        queue.add(key("Time", f"s{number}"), 1, "Count")
    assert len(queue.pop_data(2, 1_000_000)) == 2
    size = key("Time", "s2").size_bytes()
    assert len(queue.pop_data(10, size)) == 1
    assert len(queue.pop_data(10, 1)) == 1
    assert len(queue) == 1
