"""Each conversion class gives the value that the Java daemon would have, and says what is odd."""

import math

import pytest

from kcl_mld.config.config import KEYS
from kcl_mld.config.findings import Severity
from kcl_mld.config.keys import Key, Kind
from kcl_mld.config.values import convert, parse_java_int

OK, WARNING, ERROR = None, Severity.WARNING, Severity.ERROR


def key(kind, **more):
    return Key("k", kind, more.pop("default", 7), "", **more)


#: kind, text -> value (None = the default holds), worst finding.
CONVERSIONS = [
    # N0: 0 and everything malformed mean unset.
    (Kind.N0_INT, "12", 12, OK),
    (Kind.N0_INT, "  12\t", 12, OK),
    (Kind.N0_INT, "+12", 12, OK),
    (Kind.N0_INT, "-12", -12, OK),
    (Kind.N0_INT, "010", 10, OK),
    (Kind.N0_INT, "0", None, WARNING),
    (Kind.N0_INT, "", None, WARNING),
    (Kind.N0_INT, "100nf", None, WARNING),
    (Kind.N0_INT, "1.5", None, WARNING),
    (Kind.N0_INT, "1e3", None, WARNING),
    (Kind.N0_INT, "10_000", None, WARNING),
    (Kind.N0_INT, "10,000", None, WARNING),
    (Kind.N0_INT, "0x10", None, WARNING),
    (Kind.N0_INT, "5L", None, WARNING),
    (Kind.N0_INT, "2147483647", 2**31 - 1, OK),
    (Kind.N0_INT, "2147483648", None, WARNING),
    (Kind.N0_LONG, "2147483648", 2**31, OK),
    (Kind.N0_LONG, "-9223372036854775808", -(2**63), OK),
    (Kind.N0_LONG, "9223372036854775808", None, WARNING),
    (Kind.N0_DOUBLE, "1.5", 1.5, OK),
    (Kind.N0_DOUBLE, " 1e3 ", 1000.0, OK),
    (Kind.N0_DOUBLE, "5d", 5.0, OK),
    (Kind.N0_DOUBLE, ".5F", 0.5, OK),
    (Kind.N0_DOUBLE, "-Infinity", -math.inf, OK),
    (Kind.N0_DOUBLE, "0.0", None, WARNING),
    (Kind.N0_DOUBLE, "60%", None, WARNING),
    # N1: 0 counts, and everything malformed is 0.
    (Kind.N1_INT, "12", 12, OK),
    (Kind.N1_INT, "0", 0, OK),
    (Kind.N1_INT, "junk", 0, WARNING),
    (Kind.N1_INT, "2147483648", 0, WARNING),
    (Kind.N1_LONG, "2147483648", 2**31, OK),
    (Kind.N1_LONG, "", 0, WARNING),
    # Strict: no trimming.
    (Kind.STRICT_INT, "12", 12, OK),
    (Kind.STRICT_INT, "12 ", None, ERROR),
    (Kind.STRICT_INT, "", None, ERROR),
    (Kind.STRICT_INT, "abc", None, ERROR),
    (Kind.STRICT_LONG, "2147483648", 2**31, OK),
    (Kind.STRICT_LONG, "1.5", None, ERROR),
    (Kind.GRACE, "0", 0, OK),
    (Kind.GRACE, " 500 ", 500, OK),
    (Kind.GRACE, "-1", 0, WARNING),
    (Kind.GRACE, "5s", None, WARNING),
    # B0 and B1: not trimmed.
    (Kind.B0, "true", True, OK),
    (Kind.B0, "YES", True, OK),
    (Kind.B0, "y", True, OK),
    (Kind.B0, "on", True, OK),
    (Kind.B0, "1", True, OK),
    (Kind.B0, "no", None, WARNING),
    (Kind.B0, "t", None, WARNING),
    (Kind.B0, "true ", None, WARNING),
    (Kind.B0, "", None, WARNING),
    (Kind.B1, "On", True, OK),
    (Kind.B1, "false", False, OK),
    (Kind.B1, "n", False, OK),
    (Kind.B1, "off", False, OK),
    (Kind.B1, "0", False, OK),
    (Kind.B1, "true ", False, WARNING),
    (Kind.B1, "", False, WARNING),
    # Text.
    (Kind.TEXT, "a b", "a b", OK),
    (Kind.TEXT, "", "", OK),
    (Kind.TEXT, "   ", "   ", OK),
    (Kind.TEXT, "a  ", "a  ", WARNING),
    (Kind.CREDENTIALS, " a ", " a ", OK),
    # Durations.
    (Kind.DURATION, "PT15M", 900.0, OK),
    (Kind.DURATION, "pt10h", 36_000.0, OK),
    (Kind.DURATION, " P2D ", 172_800.0, OK),
    (Kind.DURATION, "P1DT1H1M1.5S", 90_061.5, OK),
    (Kind.DURATION, "-PT-1S", 1.0, OK),
    (Kind.DURATION, "PT0,25S", 0.25, OK),
    (Kind.DURATION, "PT1M-0.5S", 59.5, OK),
    (Kind.DURATION, "-PT12H", None, ERROR),
    (Kind.DURATION, "PT-1S", None, ERROR),
    (Kind.DURATION, "P", None, ERROR),
    (Kind.DURATION, "PT", None, ERROR),
    (Kind.DURATION, "P1DT", None, ERROR),
    (Kind.DURATION, "24h", None, ERROR),
    (Kind.DURATION, "", None, ERROR),
    # Tags.
    (Kind.TAGS, "a=b, c = d ,e", (("a", "b"), ("c", "d")), WARNING),
    (Kind.TAGS, " ", (), OK),
    (Kind.TAGS, "a=b=c", (), WARNING),
    (Kind.TAGS, "a=", (), WARNING),
    # Words.
    (Kind.WORDS, "ShardId, WorkerIdentifier", ("ShardId", "WorkerIdentifier"), OK),
    (Kind.WORDS, "{ShardId;Operation}", ("ShardId", "Operation"), OK),
    (Kind.WORDS, "'a b' \"c,d\" e.f-g", ("a b", "c,d", "e.f-g"), OK),
    (Kind.WORDS, "a/b", ("a",), OK),
    (Kind.WORDS, "", (), OK),
    # URLs.
    (Kind.URL, "http://localhost:4566", "http://localhost:4566", OK),
    (Kind.URL, "https://[::1]:1/x", "https://[::1]:1/x", OK),
    (Kind.URL, "kinesis.us-east-1.amazonaws.com", None, ERROR),
    (Kind.URL, "", None, ERROR),
    (Kind.URL, "localhost:4566", None, ERROR),
    (Kind.URL, "http://a b", None, ERROR),
    (Kind.URL, "http://a ", None, ERROR),
    (Kind.URL, "ftp://a", None, ERROR),
    (Kind.URL, "http://", None, ERROR),
    (Kind.URL, "http://a:99999", None, ERROR),
    (Kind.URL, "http://[a", None, ERROR),
    # Regions.
    (Kind.REGION, "us-gov-west-1", "us-gov-west-1", OK),
    (Kind.REGION, "nowhere-1", "nowhere-1", WARNING),
    (Kind.REGION, "", None, ERROR),
    (Kind.REGION, " ", None, ERROR),
    (Kind.REGION, "us-east-1 ", None, ERROR),
    (Kind.REFUSED, "", None, ERROR),
]


@pytest.mark.parametrize(("kind", "text", "value", "worst"), CONVERSIONS)
def test_text_becomes_the_value_that_java_uses(kind, text, value, worst):
    converted = convert(key(kind), text)
    assert converted.value == value
    assert type(converted.value) is type(value)
    severities = {problem.severity for problem in converted.problems}
    assert severities == ({worst} if worst else set())
    assert converted.is_wrong is (worst is ERROR)


@pytest.mark.parametrize("text", ["0", "00", "-0"])
def test_zero_is_no_surprise_where_the_default_is_zero(text):
    assert convert(key(Kind.N0_INT, default=0), text).problems == ()


def test_zero_for_an_unset_default_is_a_surprise():
    assert "the default holds" in convert(key(Kind.N0_LONG, default=None), "0").problems[0].text


def test_false_is_no_surprise_where_the_default_is_false():
    converted = convert(key(Kind.B0, default=False), "false")
    assert (converted.value, converted.problems) == (None, ())
    assert "counts as false" in convert(key(Kind.B0, default=False), "nope").problems[0].text


def test_words_of_a_choice_are_taken_in_any_case_but_not_trimmed():
    choice = key(Kind.ENUM, choices=("TRIM_HORIZON", "LATEST"))
    assert convert(choice, "TriM_Horizon").value == "TRIM_HORIZON"
    assert convert(choice, "LATEST ").problems[0].suggestion == "remove the blanks around the word"
    assert convert(choice, "").problems[0].suggestion == "write one of TRIM_HORIZON, LATEST"


def test_our_own_choices_keep_their_spelling():
    assert convert(KEYS["childFailurePolicy"], "Restart").value == "restart"


@pytest.mark.parametrize(
    ("name", "smallest"),
    [
        ("failoverTimeMillis", 78),
        ("leaseAssignmentIntervalMillis", 52),
        ("maxLeaseRenewalThreads", 2),
        ("maxLeasesForWorker", 1),
        ("maxLeasesToStealAtOneTime", 1),
        ("timeoutInSeconds", 1),
        ("metricsMaxQueueSize", 1),
        ("leaseTableScanTotalSegments", 0),
        ("inMemoryWorkerMetricsCaptureFrequencyMillis", 0),
        ("workerMetricsReporterFreqInMillis", 0),
        ("initialLeaseTableReadCapacity", 1),
        ("childRestartBackoffMillis", 1),
    ],
)
def test_the_smallest_value_that_works_is_taken_and_one_less_is_an_error(name, smallest):
    assert not convert(KEYS[name], str(smallest)).is_wrong
    # 0 is "unset" in these classes, so the first wrong value may be below it.
    wrong = smallest - 1 if smallest > 1 or KEYS[name].kind is Kind.N1_INT else -1
    converted = convert(KEYS[name], str(wrong))
    assert converted.is_wrong
    assert f"{name} = {smallest} or more" in converted.problems[0].suggestion


@pytest.mark.parametrize("text", ["x", "", "0", "-3"])
def test_a_time_out_of_nothing_is_one_error(text):
    (problem,) = convert(KEYS["timeoutInSeconds"], text).problems
    assert problem.severity is Severity.ERROR
    assert "halts" in problem.text


def test_a_malformed_number_without_effect_says_to_remove_it():
    (problem,) = convert(KEYS["retryGetRecordsInSeconds"], "x").problems
    assert problem.suggestion == "remove the line"


def test_advice_about_booleans_knows_blanks():
    assert convert(key(Kind.B1), " true").problems[0].suggestion.startswith("remove the blanks")
    assert convert(key(Kind.B1), "t").problems[0].suggestion == "write true or false"


@pytest.mark.parametrize(
    ("text", "number"), [("9" * 500, None), (" 1", None), ("٣", 3), ("²", None)]
)
def test_java_numbers(text, number):
    assert parse_java_int(text, 64) == number
