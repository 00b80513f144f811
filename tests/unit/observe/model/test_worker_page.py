"""The page ``/leases`` as those read it who watch."""

import json

import pytest

from kcl_mld.children.model.consumer_status import ConsumerStatus
from kcl_mld.errors import MalformedData
from kcl_mld.observe.model.worker_page import ShardOnPage, read_page

URL = "http://[::1]:8080/leases"


def test_what_a_worker_shows_is_read_and_the_rest_ignored():
    status = ConsumerStatus(
        lease_key="k",
        shard_id="s",
        state="PROCESSING",
        reading_lag_s=2.0,
        processing_lag_s=3.0,
        child_silent_s=4.0,
        child_exceptions=5,
        records=6,
        restarts=7,
        last_error="why",
    )
    leases = [status.as_dict(), {"lease_key": "f", "state": "FINISHED", "counter": 3}]
    reasons = [{"reason": "table_silent", "message": "no scan"}]
    whole = {"worker_id": "w", "state": "running", "reasons": reasons, "leases": leases}
    body = json.dumps(whole).encode()
    page = read_page(URL, 1.5, body)
    assert (page.worker, page.host, page.asked_at, page.failure) == ("w", "::1", 1.5, None)
    assert page.reasons == (("table_silent", "no scan"),)
    shard, finished = page.shards["k"], page.shards["f"]
    assert (shard.lag_s, shard.records, shard.restarts, shard.last_error) == (3.0, 6, 7, "why")
    assert (shard.call, shard.child_silent_s, shard.child_exceptions) == ("processRecords", 4.0, 5)
    assert (finished.lag_s, finished.records, finished.call) == (None, None, None)


@pytest.mark.parametrize(
    ("state", "reason", "call"),
    [
        ("INITIALIZING", None, "initialize"),
        ("SHUTDOWN_REQUESTED", "REQUESTED", "shutdownRequested"),
        ("SHUTTING_DOWN", "SHARD_END", "shardEnded"),
        ("SHUTTING_DOWN", "LEASE_LOST", "leaseLost"),
        ("SHUTTING_DOWN", "REQUESTED", "leaseLost"),
    ],
)
def test_the_call_that_a_child_owes(state, reason, call):
    assert ShardOnPage("k", state, reason=reason, child_silent_s=1.0).call == call


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b'{"worker_id": 1, "leases": []}', b"\xff", b"[" * 9999]
)
def test_another_answer_is_none(body):
    with pytest.raises(MalformedData, match="not the page /leases"):
        read_page(URL, 0.0, body)
