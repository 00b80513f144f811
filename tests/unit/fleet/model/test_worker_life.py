"""A process, and the item that one leaves which failed."""

import pytest

from kcl_mld.fleet.model.worker_life import (
    FailedLife,
    Instance,
    failed_life_to_item,
    failed_lives_in,
    instance_of,
)
from kcl_mld.fleet.model.worker_metrics import (
    WorkerMetrics,
    metrics_from_item,
    metrics_in,
    metrics_to_item,
)
from kcl_mld.leases.model.table_item import Entity, entity_of

LIFE = FailedLife(
    instance="abc",
    worker_id="w1",
    lived_s=7,
    failed_at_s=1_000_000,
    why="its child failed at initialize (exit status 1)",
    lease_key="shardId-1",
    position="TRIM_HORIZON",
)


def test_the_item_is_one_that_java_can_read_and_takes_for_too_old_to_get_leases():
    old = {"N": str(1_000_000 - 23 * 3600)}
    assert failed_life_to_item(LIFE, "leaseKey") == {
        "leaseKey": {"S": "kclMldFailedLife:abc"},
        "entityType": {"S": "WORKER_METRIC_STATS"},
        "lut": old,
        "slu": old,
        "sup": {"N": "1"},
        "sts": {"M": {}},
        "opr": {"M": {}},
        "properties": {
            "M": {
                "kclMldWorker": {"S": "w1"},
                "kclMldLivedSeconds": {"S": "7"},
                "kclMldFailedAt": {"S": "1000000"},
                "kclMldWhy": {"S": "its child failed at initialize (exit status 1)"},
                "kclMldLease": {"S": "shardId-1"},
                "kclMldPosition": {"S": "TRIM_HORIZON"},
            }
        },
    }


def test_it_comes_back_as_it_was_and_is_no_worker():
    bare = FailedLife(instance="x", worker_id="w2", lived_s=0, failed_at_s=1)
    items = [failed_life_to_item(one, "leaseKey") for one in (LIFE, bare)]
    items.append(metrics_to_item(WorkerMetrics("w3", 5), "leaseKey"))
    assert failed_lives_in(items, "leaseKey") == (bare, LIFE)
    assert [one.worker_id for one in metrics_in(items, "leaseKey")[0]] == ["w3"]
    assert entity_of(items[0], "leaseKey") is Entity.WORKER_METRIC_STATS


@pytest.mark.parametrize(
    "properties",
    [
        None,
        {"S": "a text"},
        {"M": {}},
        {"M": {"kclMldWorker": {"S": "w"}, "kclMldLivedSeconds": {"S": "x"}}},
        {"M": {"kclMldWorker": {"N": "1"}}},
        {
            "M": {
                "kclMldWorker": {"S": "w"},
                "kclMldLivedSeconds": {"S": "1"},
                "kclMldFailedAt": {"S": "-1"},
            }
        },
    ],
)
def test_an_item_that_somebody_spoiled_says_nothing_and_is_no_worker(properties):
    item = failed_life_to_item(LIFE, "leaseKey")
    del item["properties"]
    if properties is not None:
        item["properties"] = properties
    assert failed_lives_in([item], "leaseKey") == ()
    assert metrics_in([item], "leaseKey") == ((), ())


def test_the_process_of_an_item_counts_only_with_the_time_that_it_was_written_at():
    metrics = WorkerMetrics("w1", 500, instance=Instance("abc", 400))
    item = metrics_to_item(metrics, "leaseKey")
    assert item["properties"] == {"M": {"kclMldInstance": {"S": "500 400 abc"}}}
    assert metrics_from_item(item, "leaseKey") == metrics
    # A Java worker with the id keeps the properties and sets the time.
    assert metrics_from_item({**item, "lut": {"N": "530"}}, "leaseKey").instance is None


@pytest.mark.parametrize("text", [None, "", "500", "500 400", "500 x abc", "500 400 ", "5 400 a"])
def test_what_does_not_say_the_process_is_nothing(text):
    assert instance_of(text, 500) is None
