"""Polled or pushed, for one stream and for one of several."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kcl_mld.config.config import RetrievalMode
from tests.unit.config.test_config_build import config
from tests.unit.config.test_stream_list import ARN, many

FANOUT, POLLING = RetrievalMode.FANOUT, RetrievalMode.POLLING
CONSUMER = f"{ARN}/consumer/c:1"


@pytest.mark.parametrize(
    ("lines", "mode"),
    [([], FANOUT), (["maxRecords = 10"], POLLING), (["retrievalMode = POLLING"], POLLING)],
)
def test_one_stream_is_read_as_the_file_says(lines, mode):
    built = config(*lines)
    assert built.retrieval_of("str") is built.retrieval
    assert built.retrieval.mode is mode
    assert built.may_fan_out is (mode is FANOUT)


def test_the_consumer_of_the_only_stream():
    consumer = "arn:aws:kinesis:us-east-1:123456789012:stream/str/consumer/c:1"
    built = config(f"fanoutConfig.consumerArn = {consumer}")
    assert built.retrieval_of("str").fan_out.consumer_arn == consumer


def test_one_of_several_streams_has_a_way_and_a_consumer_of_its_own():
    built = many(
        "retrievalMode = POLLING",
        "fanoutConfig.consumerName = shared",
        "stream.clicks.retrievalMode = fanout",
        f"stream.clicks.consumerArn = {CONSUMER}",
    ).require()
    clicks, orders = built.retrieval_of("clicks"), built.retrieval_of("orders")
    assert (clicks.mode, orders.mode) == (FANOUT, POLLING)
    assert (clicks.fan_out.consumer_arn, orders.fan_out.consumer_arn) == (CONSUMER, None)
    assert clicks.fan_out.consumer_name == "shared"
    assert clicks.max_records == orders.max_records
    assert built.may_fan_out


def test_several_streams_that_are_all_polled():
    built = many("retrievalMode = POLLING", "stream.clicks.retrievalMode = POLLING").require()
    assert not built.may_fan_out
    assert not replace(built, streams=None).may_fan_out


def test_one_of_several_may_be_polled_where_the_others_are_pushed():
    built = many("stream.clicks.retrievalMode = POLLING").require()
    assert built.retrieval_of("clicks").mode is POLLING
    assert built.retrieval_of("orders").mode is FANOUT
