"""Streams that a running worker finds by their tags, over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from tests.process.daemon import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.process.daemon import Application


@pytest.fixture
def aws() -> Iterator[EmbeddedAws]:
    """One of its own: tags are asked for one stream a second, and others' streams have some, too."""
    with EmbeddedAws(options=("--create-s", "0.1", "--reshard-s", "0.1")) as running:
        yield running


def test_a_stream_that_gets_the_tag_is_read_and_one_that_loses_it_no_longer_gets_leases(
    new_app: Callable[..., Application],
) -> None:
    rule = {
        "multiStream": "true",
        "streamTags": "read by = the tests",
        "streamDiscoveryIntervalMillis": "500",
        "streamName": None,
    }
    first = new_app(shards=1)
    second = new_app(shards=1)
    tag = {"Tags": {"read by": "the tests"}}
    first.kinesis.add_tags_to_stream(StreamName=first.name, **tag)
    first.put(5)
    second.put(3)
    run = first.start(**rule)
    wait_until(lambda: len(run.records()) == 5, "the tagged stream is read")
    second.kinesis.add_tags_to_stream(StreamName=second.name, **tag)
    wait_until(lambda: len(run.records()) == 8, "the other one is read, too")
    names = {key.split(":")[1] for key in first.items()}
    assert names == {first.name, second.name}
    second.kinesis.remove_tags_from_stream(StreamName=second.name, TagKeys=["read by"])
    run.wait_for_log("left the list; its leases are still read")
    assert run.stop() == 0, run.output
