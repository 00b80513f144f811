"""``kcl-mld consumers list`` and ``deregister`` on the embedded AWS."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import Application, wait_until
from tests.process.test_explain import properties_of, typed

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.process

#: So long a command looks whether workers renew their leases.
FAILOVER = {"failoverTimeMillis": "4000"}


def listed(app: Application) -> dict[str, dict[str, Any]]:
    """Consumers by name, as the command prints them."""
    done = typed(app, "consumers", "list", str(properties_of(app, **FAILOVER)), "-o", "json")
    assert done.returncode == 0, done.stderr
    return {one["consumer"]: one for one in json.loads(done.stdout)["consumers"]}


def test_consumers_are_listed_and_removed(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    assert listed(app) == {}
    arn = app.kinesis.describe_stream_summary(StreamName=app.name)["StreamDescriptionSummary"][
        "StreamARN"
    ]
    app.kinesis.register_stream_consumer(StreamARN=arn, ConsumerName="old")
    app.put(3)
    run = app.start(retrievalMode="FANOUT", **FAILOVER)
    wait_until(lambda: len(run.records()) == 3, "it reads")
    assert {name: one["own"] for name, one in listed(app).items()} == {"old": False, app.name: True}
    file = str(properties_of(app, **FAILOVER))
    table = typed(app, "consumers", "list", file).stdout.splitlines()
    assert table[0].split() == ["stream", "consumer", "status", "created", "used", "by"]
    assert len(table) == 3
    words = ("consumers", "deregister", "-p", file)
    refused = typed(app, *words, app.name, "--execute")
    assert refused.returncode == 5
    assert "workers use it and renew leases: w1" in refused.stderr
    assert typed(app, *words, "nobody").returncode == 2
    assert typed(app, *words).returncode == 2
    dry = typed(app, *words, "old")
    assert dry.returncode == 0
    assert json.loads(dry.stdout)["executed"] is False
    assert "old" in listed(app)
    assert typed(app, *words, "old", "--execute").returncode == 0
    wait_until(lambda: set(listed(app)) == {app.name}, "it is gone")
    assert run.stop() == 0
    own = listed(app)[app.name]["arn"]
    assert typed(app, *words, own, "--execute").returncode == 0
    wait_until(lambda: not listed(app), "no consumer is left")
