"""What is set outside a properties file, and variables of the environment in its values."""

import pytest

from kcl_mld.config.build import build_config
from kcl_mld.config.findings import Finding, Severity
from kcl_mld.config.overrides import Overrides, conceal, overrides_of, parse_setting
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel

BASE = b"""executableName = app.py
applicationName = app
streamName = str
AwsCredentialsProvider = DefaultCredentialsProvider
regionName = us-east-1
retrievalMode = POLLING
"""


def outside(*settings, expands=False, **environ):
    typed = [parse_setting(text, "--set") for text in settings]
    return overrides_of(environ, typed, expands=expands)


def built(text="", *settings, expands=False, base=BASE, **environ):
    overrides = outside(*settings, expands=expands, **environ)
    return build_config(base + text.encode(), "f", worker_id="fresh", overrides=overrides)


def values(text, *settings, expands=True, **environ):
    entries = outside(*settings, expands=expands, **environ).entries(text.encode(), "f")
    return {entry.key: entry.value for entry in entries}


def test_a_setting_stands_in_place_of_the_line_and_says_where_it_is_from():
    result = built("", "applicationName=blue")
    setting = result.setting("applicationName")
    assert (setting.value, setting.origin, setting.line) == ("blue", "--set", None)
    assert result.require().leases.table_name == "blue"
    assert result.findings == ()


def test_a_setting_may_be_one_that_the_file_lacks():
    assert built("", "failoverTimeMillis = 20000").require().leases.failover_s == 20


def test_the_later_of_two_settings_wins_and_those_typed_win_over_the_environment():
    environ = {"KCL_MLD_SET": "streamName=a\nregionName=eu-west-1\n\nstreamName=b"}
    assert built(**environ).require().stream.name == "b"
    assert built("", "streamName=c", "streamName=d", **environ).require().stream.name == "d"
    result = built("", "streamName=c", **environ)
    assert result.setting("regionName").origin == "KCL_MLD_SET"
    assert result.findings == ()


def test_a_setting_replaces_its_property_under_any_name_and_what_was_wrong_with_it():
    text = "workerIdentifier = a b \nAWSCredentialsProvider = Nonsense\nkinesisEndpoint = $X\n"
    base = BASE.replace(b"AwsCredentialsProvider", b"#")
    settings = ("workerId=w1", "AwsCredentialsProvider=EnvironmentVariableCredentialsProvider")
    result = built(text, *settings, "kinesisClient.endpointOverride=http://h:1", base=base)
    assert [f for f in result.findings if f.severity is not Severity.INFO] == []
    assert result.require().worker_id == "w1"
    assert result.require().aws.kinesis_endpoint == "http://h:1"


def test_of_two_spellings_that_are_set_the_later_wins():
    assert built("", "workerId=a", "workerIdentifier=b").require().worker_id == "b"


@pytest.mark.parametrize(
    ("setting", "advice"),
    [
        ("applicationname=x", "did you mean applicationName? Upper and lower case matter."),
        ("tableNme=x", "did you mean tableName?"),
        ("leaseTableTags=x", "tag the lease table in DynamoDB"),
    ],
)
def test_a_key_that_is_none_is_found_as_in_the_file(setting, advice):
    (found,) = built("", setting).findings
    assert (found.source, found.line, found.suggestion) == ("--set", None, advice)
    assert str(found).startswith(f"--set: warning: {setting.partition('=')[0]}: not a property")


def test_a_value_that_is_wrong_names_what_set_it():
    (found,) = built(KCL_MLD_SET="tableName=a b").findings
    assert str(found).startswith("KCL_MLD_SET: error: tableName: 'a b' is not a valid table name")


def test_a_setting_has_neither_escapes_nor_comments_nor_another_encoding():
    result = built("", r"executableName=app.py C:\new # Ã©")
    assert result.require().child.argv == ("app.py", "C:\\new", "#", "Ã©")
    assert result.findings == ()


def test_the_start_position_that_is_set_wins_over_that_of_the_file():
    timed = "initialPositionInStreamExtended = 17\n"
    plain = "initialPositionInStream = LATEST\n"
    result = built(plain + timed, "initialPositionInStream=TRIM_HORIZON")
    assert result.require().stream.initial_position == InitialPosition(Sentinel.TRIM_HORIZON)
    assert result.findings == ()
    result = built(timed + plain, "initialPositionInStreamExtended=18")
    assert result.require().stream.initial_position == InitialPosition(Sentinel.AT_TIMESTAMP, 18.0)


def test_spark_keys_and_options_of_streams_are_set_as_well():
    many = b"multiStream = true\nstreams = a, b\nstream.a.retrievalMode = FANOUT\n"
    base = BASE.replace(b"streamName = str\n", b"")
    result = built(
        "spark.sink = delta\n", "spark.sink=jdbc", "stream.a.retrievalMode=POLLING",
        "stream.b.retrievalMode=ONCE", base=base + many,
    )  # fmt: skip
    one = next(one for one in result.spark if one.name == "spark.sink")
    assert (one.text, one.shown, one.origin) == ("jdbc", "jdbc", "--set")
    (error,) = (f for f in result.findings if f.severity is Severity.ERROR)
    assert str(error).startswith("--set: error: stream.b.retrievalMode: 'ONCE' is not")


@pytest.mark.parametrize("text", ["tableName", "=x", " = x", ""])
def test_what_is_no_setting_is_refused(text):
    with pytest.raises(ConfigError, match=r"--set: .* is not KEY=VALUE"):
        parse_setting(text, "--set")


def test_a_secret_that_is_no_setting_is_not_repeated():
    with pytest.raises(ConfigError) as caught:
        parse_setting("AKIAIOSFODNN7EXAMPLE", "--set")
    assert "IOSFODNN7" not in str(caught.value)


def test_a_value_of_several_lines_is_refused():
    with pytest.raises(ConfigError, match="--set: the value of tableName has several lines"):
        parse_setting("tableName = a\nb", "--set")


def test_variables_are_put_in_once_and_only_where_they_are_asked_for():
    text = r"""a = ${A}-${B}
b = ${NONE:-default}${EMPTY:-of ${A} # }
c = ${EMPTY}|${EMPTY:-}
d = $${A} $A ${A}
e = \u0024{A}
"""
    given = {"A": "${B}", "B": "x\\ty", "EMPTY": ""}
    assert values(text, **given) == {
        "a": "${B}-x\\ty",
        "b": "defaultof ${A # }",
        "c": "|",
        "d": "${A} $A ${B}",
        "e": "${B}",
    }
    assert values("a = ${A}", expands=False, **given) == {"a": "${A}"}
    assert values("a = x", "b=${B}", **given) == {"a": "x", "b": "x\\ty"}


def test_every_variable_that_is_missing_is_named_with_file_line_and_key():
    with pytest.raises(ConfigError) as caught:
        values("a = ${A}\n\nb = ${B}${C:-c}\n", "c=${D}")
    assert str(caught.value).splitlines() == [
        "f:1: error: a: the environment has no variable A (set it, or write ${A:-default})",
        "f:3: error: b: the environment has no variable B (set it, or write ${B:-default})",
        "--set: error: c: the environment has no variable D (set it, or write ${D:-default})",
    ]
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("wrong", ["${}", "${1A}", "${A-b}", "${A", "${A B}", "${-x}"])
def test_what_is_no_variable_is_an_error_rather_than_a_value(wrong):
    with pytest.raises(ConfigError, match=r"f:1: error: a: .* is not \$\{NAME\} or"):
        values(f"a = x{wrong}", A="a")


@pytest.mark.parametrize(
    ("word", "expands"),
    [("true", True), ("1", True), (" Yes ", True), ("", False), ("false", False), ("0", False)],
)
def test_the_environment_may_ask_for_its_variables(word, expands):
    assert outside(KCL_MLD_EXPAND_ENV=word).expands is expands
    assert outside(KCL_MLD_EXPAND_ENV=word, expands=True).expands is True


def test_a_word_that_is_no_boolean_is_refused():
    with pytest.raises(ConfigError, match="KCL_MLD_EXPAND_ENV: 'maybe' is not true or false"):
        outside(KCL_MLD_EXPAND_ENV="maybe")


def test_a_malformed_line_of_the_environment_is_refused():
    with pytest.raises(ConfigError, match="KCL_MLD_SET: 'tableName' is not KEY=VALUE"):
        outside(KCL_MLD_SET="a=b\ntableName")


def test_another_process_reads_the_file_alike():
    given = outside("a=b=c", "d=${E}", expands=True, KCL_MLD_SET="a=x\nf=g")
    other = overrides_of({**given.as_environment(), "E": "e"})
    assert [(one.key, one.value, one.origin) for one in other.entries(b"", "f")] == [
        ("a", "b=c", "KCL_MLD_SET"),
        ("f", "g", "KCL_MLD_SET"),
        ("d", "e", "KCL_MLD_SET"),
    ]
    assert Overrides().as_environment() == {"KCL_MLD_SET": "", "KCL_MLD_EXPAND_ENV": "false"}


def test_a_value_with_variables_is_shown_as_written_and_says_whose_it_is():
    base = BASE.replace(b"= app\n", b"= ${APP}-${STAGE}\n")
    result = built(base=base, expands=True, APP="orders", STAGE="eu")
    assert result.require().application_name == "orders-eu"
    setting = result.setting("applicationName")
    assert result.shown(setting) == "${APP}-${STAGE}"
    assert setting.origin == "f:2, environment APP, environment STAGE"


def test_what_a_variable_holds_is_not_shown_where_a_value_follows_from_it():
    base = BASE.replace(b"= app\n", b"= ${APP}\n")
    result = built(base=base, expands=True, APP="hunter2")
    assert result.require().leases.table_name == "hunter2"
    assert result.shown(result.setting("tableName")) == "${APP}"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("maxRecords = ${V}", "'${V}' is not a number in range"),
        ("metricsLevel = ${V}", "'${V}' is not one of its values"),
        ("tableName = a ${V}", "'a ${V}' is not a valid table name"),
        ("spark.sink = ${V}", "${V}"),
    ],
)
@pytest.mark.parametrize("content", ["hunter2 & co", 'it\'s "2" \\ x'])
def test_what_a_variable_holds_is_not_shown_where_it_is_wrong(line, text, content):
    (found,) = built(line, expands=True, V=content).findings
    assert text in found.text
    assert "hunter2" not in str(found)
    assert '"2"' not in str(found)


def test_findings_that_are_added_later_do_not_show_it_either():
    result = built("processingLanguage = ${V}\n", expands=True, V="hunter2")
    added = Finding(Severity.WARNING, "f", 7, "x", "hunter2!", "not hunter2")
    (found,) = result.with_findings([added]).findings
    assert (found.text, found.suggestion) == ("${V}!", "not ${V}")


def test_short_contents_do_not_make_other_texts_unreadable():
    result = built("processingLanguage = ${V}\nmaxRecords = x\n", expands=True, V="x")
    assert any("'x' is not a number" in f.text for f in result.findings)


def test_the_longest_content_is_hidden_first():
    assert conceal("abcdefgh abcd", {"abcd": "${A}", "abcdefgh": "${B}"}) == "${B} ${A}"


def test_what_is_said_of_the_spelling_of_a_line_is_not_said_of_what_is_put_in():
    text = "processingLanguage = ${V}\nworkerGroup = x # ${V}\n"
    found = built(text, expands=True, V="Ã© # x").findings
    texts = [f.text for f in found if f.severity is Severity.WARNING]
    assert texts == ["what follows # is part of the value, not a comment, as in Java"]
