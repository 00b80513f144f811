"""The section of ``childFailurePolicy = deadletter``."""

import pytest

from kcl_mld.config.contain_config import ContainConfig
from kcl_mld.config.findings import Severity
from tests.unit.config.test_config_build import built, config, warnings


def errors(result):
    return [str(one) for one in result.findings if one.severity is Severity.ERROR]


POLICY = "childFailurePolicy = deadletter"


def test_without_the_policy_there_is_no_section():
    assert config().contain is None
    assert config("childFailurePolicy = restart").contain is None


def test_a_destination_is_enough():
    contain = config(POLICY, "onFailureDestination = file:letters").contain
    assert contain == ContainConfig(destination="file:letters")
    assert (contain.bisects, contain.max_record_age_s, contain.limit) == (True, None, 10)
    assert (contain.with_records, contain.with_stderr) == (False, False)


def test_everything_can_be_said():
    contain = config(
        POLICY,
        "onFailureDestination = s3://bucket/dead/letters",
        "bisectBatchOnFailure = false",
        "maximumRecordAgeInSeconds = 60",
        "deadLetterLimit = 3",
        "deadLetterRecords = true",
        "deadLetterStderr = true",
    ).contain
    assert contain == ContainConfig(
        destination="s3://bucket/dead/letters",
        bisects=False,
        max_record_age_s=60.0,
        limit=3,
        with_records=True,
        with_stderr=True,
    )


@pytest.mark.parametrize(
    "text",
    [
        "file:letters",
        "file:/var/letters",
        "file:///var/letters",
        "s3://bucket",
        "s3://bucket/prefix",
        "sqs:https://sqs.us-east-1.amazonaws.com/123456789012/dead.fifo",
        "sqs:http://127.0.0.1:4566/123456789012/dead",
    ],
)
def test_a_destination_that_is_whole_is_accepted(text):
    assert config(POLICY, f"onFailureDestination = {text}").contain.destination == text


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fiel:letters", "did you mean file:FOLDER?"),
        ("sns:arn", "did you mean sqs:URL of the queue?"),
        ("kafka://x", "write one of file:FOLDER, s3://BUCKET/PREFIX, sqs:URL of the queue"),
        ("file:", "is not of the form file:FOLDER"),
        ("file://letters", "is not of the form file:FOLDER"),
        ("s3:bucket", "is not of the form s3://BUCKET/PREFIX"),
        ("sqs:dead", "is not of the form sqs:URL"),
        ("sqs:https://host/dead", "is not of the form sqs:URL"),
        ("", "nothing is skipped that is not kept"),
    ],
)
def test_a_destination_that_is_none_is_an_error(text, words):
    result = built(POLICY, f"onFailureDestination = {text}")
    (error,) = errors(result)
    assert words in error
    assert "onFailureDestination" in error


def test_the_policy_needs_a_destination():
    (error,) = errors(built(POLICY))
    assert "deadletter needs onFailureDestination" in error


def test_properties_without_the_policy_mean_nothing():
    found = warnings(built("onFailureDestination = file:letters", "deadLetterLimit = 3"))
    assert len([one for one in found if "has no effect without" in one]) == 2


@pytest.mark.parametrize(
    "lines",
    [
        ("executableName = kcl-mld-spark app.py",),
        (
            "multiStream = true",
            "streams = a,b",
            "stream.b.executableName = kcl-mld-spark app.py",
        ),
    ],
)
def test_the_spark_child_has_its_own_way(lines):
    found = errors(built(POLICY, "onFailureDestination = file:letters", *lines))
    assert any("spark.function.onError" in error for error in found)


def test_a_message_of_sqs_has_no_records():
    result = built(
        POLICY,
        "onFailureDestination = sqs:https://sqs.us-east-1.amazonaws.com/1/dead",
        "deadLetterRecords = true",
    )
    (error,) = errors(result)
    assert "messages of SQS have no records" in error
    assert all(one.severity is not Severity.WARNING for one in result.findings)
