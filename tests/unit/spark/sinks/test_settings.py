"""The package of a decoder, and the sink that does nothing."""

from __future__ import annotations

import pytest

from kcl_mld.spark.ports import CommitOutcome
from kcl_mld.spark.rows.decode import AVRO_COORDINATE, decoder_conf
from kcl_mld.spark.sinks.foreach import ForeachSink
from tests.unit.spark.batches import batch, config_of, shard


def conf_of(**more: str) -> dict[str, str]:
    return decoder_conf(config_of(sink="delta", **more))


def test_the_avro_decoder_brings_its_package_beside_those_of_the_user():
    assert conf_of(decoder="avro") == {"spark.jars.packages": AVRO_COORDINATE}
    found = conf_of(decoder="avro", conf__spark__jars__packages="a:b:1")
    assert found == {"spark.jars.packages": f"a:b:1,{AVRO_COORDINATE}"}


def test_an_avro_package_of_the_users_is_kept():
    named = "org.apache.spark:spark-avro_2.13:4.0.1"
    for place in ("spark.jars.packages", "spark.jars"):
        assert conf_of(decoder="avro", **{f"conf__{place}": named}) == {}


@pytest.mark.parametrize("more", [{"remote": "sc://there:15002", "decoder": "avro"}, {}])
def test_a_server_that_is_not_ours_and_other_decoders_get_nothing(more):
    assert conf_of(**more) == {}


def test_foreach_leaves_everything_to_the_function():
    sink = ForeachSink(config_of(sink="foreach"), "app")
    both = [batch(shard(), None, 3), batch(shard(1), 3, 4)]
    sink.prepare(None)
    assert sink.mark(shard()) is None
    staged = sink.write(None, both)
    outcomes = sink.commit_all(staged, both)
    assert outcomes == {each.shard: CommitOutcome.STANDS for each in both}
    sink.discard(staged)
