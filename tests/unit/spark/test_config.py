"""What the Spark host says to the properties that it is handed."""

import pytest

from kcl_mld.spark.config import read_properties, require_places, rooted
from kcl_mld.spark.errors import SparkConfigError


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("spark.sink.pth", "did you mean spark.sink.path?"),
        ("spark.MicroBatch.maxRecords", "did you mean spark.batch.maxRecords?"),
        ("spark.sql.shuffle.partitions", "what is meant for Spark itself goes below spark.conf."),
    ],
)
def test_an_unknown_key_is_refused_with_what_may_be_meant(name, advice):
    with pytest.raises(SparkConfigError) as failure:
        read_properties({name: "1"})
    assert str(failure.value) == f"{name}: no such property ({advice})"


@pytest.mark.parametrize(
    ("name", "word", "why"),
    [
        ("spark.sink", "parquet", "files without a log can't be exactly"),
    ],
)
def test_why_there_is_no_such_word_is_told(name, word, why):
    with pytest.raises(SparkConfigError, match=f"^{name}: '{word}' is not one of .*: .*{why}"):
        read_properties({name: word})


def test_the_columns_of_directories_are_a_list():
    given = {"spark.sink": "delta", "spark.sink.partitionBy": " day, carrier ,"}
    assert read_properties(given).partition_by == ("day", "carrier")


def test_what_does_not_fit_together_is_told_with_every_key():
    given = {"spark.sink": "merge", "spark.sink.key": "id", "spark.sink.table": "t"}
    config = read_properties(given)
    with pytest.raises(SparkConfigError) as failure:
        require_places(config)
    missing, misplaced = str(failure.value).split("; ", 1)
    assert missing == "spark.sink.path is missing: the merge sink writes there: name a directory"
    assert misplaced.startswith("spark.sink.table is for jdbc: merge writes its table without a")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("out", "/srv/app/out"),
        ("/data/out", "/data/out"),
        ("s3://bucket/out", "s3://bucket/out"),
        ("file:/data/out", "file:/data/out"),
    ],
)
def test_directories_are_those_of_the_start_wherever_an_app_goes(text, place):
    given = {"spark.sink.path": text, "spark.function.deadletter.path": f"{text}-bad"}
    config = rooted(read_properties(given), "/srv/app")
    assert (config.sink_path, config.letters_path) == (place, f"{place}-bad")
    assert rooted(read_properties({}), "/srv/app").sink_path is None


def test_foreach_has_no_place_for_records_of_which_its_function_fails(tmp_path):
    config = read_properties(
        {
            "spark.sink": "foreach",
            "spark.function.onError": "deadletter",
            "spark.function.deadletter.path": str(tmp_path / "letters"),
        }
    )
    with pytest.raises(SparkConfigError, match="needs a sink that writes what the function"):
        require_places(config)
