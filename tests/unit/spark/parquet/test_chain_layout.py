"""The names of the parquet chain and its markers, both ways."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from mld.spark.errors import SinkRefused
from mld.spark.model import Position, ShardKey
from mld.spark.parquet import chain_layout

TEXT = st.text(min_size=1, max_size=20)


def test_a_marker_says_the_same_after_a_round_trip():
    marker = chain_layout.Marker(Position(2**180, 7), 5, 2, 99, "me", 12.5)
    assert chain_layout.Marker.decode(marker.encode()) == marker
    longer = {**json.loads(marker.encode()), "of a later version": 1}
    assert chain_layout.Marker.decode(json.dumps(longer)) == marker


@given(stream=TEXT, epoch=TEXT)
def test_odd_names_stay_one_directory_deep_and_come_back(stream, epoch):
    path = chain_layout.shard_path(ShardKey("app", stream, "shardId-000000000001", epoch))
    parts = path.split("/")
    assert len(parts) == 3
    assert not set("*?[]{}\\~ :#%") & set(path.replace("%", ""))
    assert chain_layout.stream_of(parts[1]) == stream
    assert chain_layout.shard_of(parts[2]) == "shardId-000000000001"


def test_only_directories_of_ours_have_a_stream_or_a_shard():
    assert chain_layout.stream_of("_staging") is None
    assert chain_layout.shard_of("stream=x") is None
    assert chain_layout.link_of("_hint.json") is None
    assert chain_layout.link_of("after=x") is None
    assert chain_layout.link_of("after=start") == (None,)
    assert chain_layout.link_of("after=5.1") == (Position(5, 1),)


def test_a_name_that_no_directory_can_have_is_refused():
    with pytest.raises(SinkRefused, match="too long"):
        chain_layout.escape("ü" * 50)
