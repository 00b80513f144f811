"""The stream or the lease table disappears under a running daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.streams.existence_watch import GIVE_UP_S
from tests.process.daemon import PATIENCE_S, heard, shard_id, wait_until
from tests.process.test_daemon_watched import free_address, get

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

DELETED, RECREATED, TABLE, NEW_TABLE = "stream", "new stream", "table", "new table"
SAYS = {
    DELETED: "was deleted. Its leases in table",
    RECREATED: "was deleted and created again (the new one was created at",
    TABLE: "was deleted, so no checkpoint can be stored",
    NEW_TABLE: "was deleted and created again, so the checkpoints",
}


def strike(app: Application, what: str) -> None:
    if what in {DELETED, RECREATED}:
        app.kinesis.delete_stream(StreamName=app.name)
        if what == RECREATED:
            app.create_stream(2)
            app.put(10)
    else:
        app.dynamodb.delete_table(TableName=app.name)
        if what == NEW_TABLE:
            app.create_table()


def wait_until_all_say(addresses: Mapping[str, str]) -> None:
    """Until each worker was seen to live and to say what is gone, which it does for a while."""
    silent = dict(addresses)

    def say() -> bool:
        for what, address in list(silent.items()):
            code, body = get(address, "/readyz")
            reasons = {one["reason"]: one["message"] for one in body.get("reasons", ())}
            name = "stream_deleted" if "stream" in what else "table_deleted"
            # A look may have fallen between the deletion and the creation; the next one knows.
            if code == 503 and SAYS[what] in reasons.get(name, ""):
                assert get(address, "/livez")[0] == 200
                del silent[what]
        return not silent

    wait_until(say, "each worker says what is gone")


def test_a_stream_or_table_that_disappears_ends_the_worker_with_code_4(
    new_app: Callable[..., Application],
) -> None:
    apps = {what: new_app(shards=2) for what in SAYS}
    addresses = {what: free_address() for what in SAYS}
    runs = {}
    for what, app in apps.items():
        app.put(10)
        runs[what] = app.start(arguments=("--http", addresses[what]))
    for what, run in runs.items():
        run.wait_for_actions("checkpoint", 2)
        wait_until(lambda at=addresses[what]: get(at, "/readyz")[0] == 200, "it is ready")
    before = {what: app.items() for what, app in apps.items()}
    for what, app in apps.items():
        strike(app, what)
    wait_until_all_say(addresses)
    for what, run in runs.items():
        assert run.ends(GIVE_UP_S + PATIENCE_S) == 4, run.output
        assert SAYS[what] in run.output
        assert run.output.count("The worker ends with exit code 4 in") <= 4, run.output
        assert "shardEnded" not in run.actions()
    for what in (DELETED, RECREATED):
        expect_released(runs[what], before[what], apps[what].items())
    for what in (TABLE, NEW_TABLE):
        assert apps[what].items() == {}
        for child in runs[what].children():
            assert heard(child)[-2:] == ["leaseLost", "EOF"]
            assert "shutdownRequested" not in heard(child)


def expect_released(
    run: Running, before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]
) -> None:
    """The leases stay where they were, and the children had a last word."""
    assert set(after) == {shard_id(0), shard_id(1)}
    for key, row in after.items():
        assert row["checkpoint"] == before[key]["checkpoint"]
        assert "leaseOwner" not in row
    for child in run.children():
        assert heard(child)[-4:] == ["shutdownRequested", "checkpoint", "leaseLost", "EOF"]
