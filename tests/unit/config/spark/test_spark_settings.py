"""The spark.* lines of a file: checked, masked, and handed on as they are."""

import pytest

from kcl_mld.config.build import build_config
from kcl_mld.config.findings import Severity
from kcl_mld.config.spark.keys import KEYS
from tests.unit.config.test_config_build import BASE


def built(*lines):
    text = [*(f"{name} = {value}" for name, value in BASE.items()), *lines]
    return build_config("\n".join(text).encode(), "f", worker_id="fresh")


def spark_findings(result):
    return [f for f in result.findings if f.key is not None and f.key.startswith("spark.")]


def shown(result):
    return {setting.name: setting.shown for setting in result.spark}


def test_a_file_without_spark_has_none_of_it():
    result = built()
    assert result.spark == ()
    assert result.require().spark == {}


def test_texts_are_handed_on_verbatim_and_the_last_line_counts():
    result = built("spark.sink = delta", "spark.batch.maxDelay=2s", "spark.sink: jdbc")
    assert result.require().spark == {"spark.batch.maxDelay": "2s", "spark.sink": "jdbc"}
    [finding] = spark_findings(result)
    assert (finding.severity, finding.line) == (Severity.WARNING, len(BASE) + 1)


def test_all_keys_are_shown_with_their_defaults_as_soon_as_there_is_one():
    result = built("spark.sink = delta", "spark.conf.x = 1")
    assert [setting.name for setting in result.spark] == [
        *(key.name for key in KEYS),
        "spark.conf.x",
    ]
    origins = {setting.name: setting.origin for setting in result.spark}
    assert origins["spark.sink"] == f"f:{len(BASE) + 1}"
    assert origins["spark.sink.path"] == "default"
    assert shown(result)["spark.master"] == "local[*]"
    assert shown(result)["spark.sink.path"] == ""


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("spark.sink = delt", "'delt' is not one of delta, merge"),
        (
            "spark.sink = parquet",
            "A Delta table is Parquet files with such a log: write spark.sink = d",
        ),
        ("spark.batch.maxRecords = many", "'many' is not a whole number"),
        ("spark.batch.maxDelay = 5", "not a duration"),
        ("spark.driver.memory = 1k", "less than the least"),
    ],
)
def test_a_value_that_the_host_would_refuse_is_an_error_at_its_line(line, part):
    result = built("", line)
    [finding] = spark_findings(result)
    assert finding.severity is Severity.ERROR
    assert finding.line == len(BASE) + 2
    assert part in finding.text
    assert result.config is None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("spark.sink.pth", "did you mean spark.sink.path?"),
        ("spark.Sink.path", "did you mean spark.sink.path? Upper and lower case matter."),
        ("spark.executor.cores.of.mine", "goes below spark.conf."),
        ("spark.conf.", "goes below spark.conf."),
        ("spark." + "x" * 5000, "goes below spark.conf."),
    ],
)
def test_an_unknown_name_is_handed_on_with_a_warning(name, advice):
    result = built(f"{name} = 1")
    [finding] = spark_findings(result)
    assert finding.severity is Severity.WARNING
    assert "which refuses it if it is kcl-mld-spark" in finding.text
    assert advice in finding.suggestion
    assert result.require().spark == {name: "1"}


def test_what_is_meant_for_spark_itself_is_not_judged():
    assert not spark_findings(built("spark.conf.spark.sql.ansi.enabled = maybe"))


def test_secrets_are_not_shown():
    lines = ("spark.sink.options.password = hunter2", "spark.sink.url = jdbc:x://me:pw@host/db")
    result = built(*lines)
    assert "hunter2" in result.require().spark["spark.sink.options.password"]
    assert shown(result)["spark.sink.options.password"] == "****"
    assert "pw" not in shown(result)["spark.sink.url"]
    assert "hunter2" not in repr(result.config)


def test_characters_that_change_on_reading_are_reported():
    [finding] = spark_findings(built("spark.sink.path = /data/ä"))
    assert "ISO-8859-1" in finding.text


@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("compresion", "did you mean spark.sink.options.compression?"),
        (
            "partitionby",
            "did you mean spark.sink.options.partitionBy? Upper and lower case matter.",
        ),
        ("passwort", "did you mean spark.sink.options.password?"),
    ],
)
def test_an_option_that_looks_like_one_of_ours_is_a_warning(option, advice):
    (finding,) = spark_findings(built(f"spark.sink.options.{option} = 1"))
    assert finding.severity is Severity.WARNING
    assert finding.suggestion == advice


@pytest.mark.parametrize(
    "option",
    [
        *("mergeSchema", "compression", "maxRecordsPerFile", "parquet.block.size", "user"),
        *("batchsize", "numPartitions", "isolationLevel", "queryTimeout", "sessionInitStatement"),
        *("sslpassword", "sslfactory", "sslpasswordcallback", "socketTimeout", "tcpKeepAlive"),
        *("targetServerType", "prepareThreshold", "x" * 5000),
    ],
)
def test_options_of_spark_and_its_driver_are_not_judged(option):
    assert not spark_findings(built(f"spark.sink.options.{option} = 1"))


@pytest.mark.parametrize(
    ("name", "text", "shows"),
    [
        ("credential", "id:hunter2", "****"),
        ("token", "hunter2", "****"),
        ("s3.secret-access-key", "hunter2", "****"),
        ("uri", "postgresql+psycopg://me:hunter2@host/db", "postgresql+psycopg://****@host/db"),
        ("warehouse", "s3://bucket/lake", "s3://bucket/lake"),
    ],
)
def test_secrets_of_a_catalog_are_masked_and_nothing_else_is(name, text, shows):
    given = (
        "spark.sink = iceberg",
        "spark.sink.table = a.b",
        f"spark.sink.catalog.{name} = {text}",
    )
    result = built("\n".join(given))
    assert not spark_findings(result)
    assert shown(result)[f"spark.sink.catalog.{name}"] == shows
