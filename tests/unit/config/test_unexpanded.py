"""``$NAME`` and ``${NAME}`` in a file that nothing expands."""

import pytest

from kcl_mld.config.findings import Severity
from tests.unit.config.test_config_build import built

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/${S}"
NO_VARIABLES = "stays as it is: a properties file has no variables, in Java neither"


@pytest.mark.parametrize(
    ("key", "value", "written", "meant"),
    [
        ("applicationName", "$APP", "$APP", "${APP}"),
        ("applicationName", "my ${APP-x}", "${APP-x}", "${APP}"),
        ("streamName", "orders-${STAGE}", "${STAGE}", "${STAGE}"),
        ("streamArn", ARN, "${S}", "${S}"),
        ("streamArn", "${ARN}", "${ARN}", "${ARN}"),
        ("tableName", "${}", "${}", "${NAME}"),
        ("regionName", "$REGION", "$REGION", "${REGION}"),
        ("kinesisClient.region", "${REGION", "${REGION", "${REGION}"),
        ("kinesisEndpoint", "http://$HOST:4566", "$HOST", "${HOST}"),
        ("dynamoDBEndpoint", "http://${HOST}:4566", "${HOST}", "${HOST}"),
        ("dynamoDBEndpoint", "${URL}", "${URL}", "${URL}"),
        ("dynamoDBEndpoint", "${SCHEME}://host", "${SCHEME}", "${SCHEME}"),
        ("fanoutConfig.consumerName", "c-$S", "$S", "${S}"),
        ("fanoutConfig.consumerArn", "$C", "$C", "${C}"),
        ("workerMetricsTableName", "$T", "$T", "${T}"),
        ("AwsCredentialsProviderDynamoDB", "StsAssumeRoleCredentialsProvider|$ROLE|s", "$ROLE",
         "${ROLE}"),
        ("AwsCredentialsProvider", "${CHAIN}", "${CHAIN}", "${CHAIN}"),
    ],
)  # fmt: skip
def test_a_value_that_can_not_be_right_is_one_error_with_the_way_out(key, value, written, meant):
    result = built(**{key: value})
    (error,) = (one for one in result.findings if one.severity is Severity.ERROR)
    assert error.key == key
    assert error.text == f"{written} {NO_VARIABLES}"
    assert error.suggestion == (
        f"write {meant} and give --expand-env or KCL_MLD_EXPAND_ENV=true, or give --set {key}=…"
    )


def test_the_error_has_the_line_and_hides_no_other():
    result = built("kinesisClient.endpointOverride = $URL", applicationName="$A", tableName="a b")
    told = [(f.key, f.line) for f in result.findings if f.severity is Severity.ERROR]
    assert told == [("applicationName", 2), ("tableName", 6), ("kinesisEndpoint", 7)]


@pytest.mark.parametrize(
    "url", ["http://me:pa$word@host:1", "https://host/$default", "http://h?$a"]
)
def test_a_dollar_sign_in_a_password_or_a_path_is_one(url):
    assert [f for f in built(kinesisEndpoint=url).findings if f.severity is Severity.ERROR] == []


def test_streams_of_a_list():
    result = built("multiStream = true", "streams = $A, b", without=["streamName"])
    (error,) = (one for one in result.findings if one.severity is Severity.ERROR)
    assert (error.key, error.text) == ("streams", f"$A {NO_VARIABLES}")


@pytest.mark.parametrize("value", ["a$", "$1", "US$ 3"])
def test_a_dollar_alone_is_no_variable(value):
    result = built(processingLanguage=value)
    assert [one for one in result.findings if one.severity is Severity.ERROR] == []
    told = built(tableName=value).findings
    assert "is not a valid table name" in told[0].text


def test_the_warning_of_a_worker_id_names_the_way_to_the_environment():
    told = built(workerId="${HOSTNAME}").findings[0]
    assert (told.key, told.severity) == ("workerId", Severity.WARNING)
    assert told.suggestion.endswith("; or write ${HOSTNAME} and give --expand-env or"
                                    " KCL_MLD_EXPAND_ENV=true")  # fmt: skip
    assert "--expand-env" not in built(workerId="{hostname}").findings[0].suggestion


@pytest.mark.parametrize(
    ("command", "severity"),
    [
        ("python3 -m x.$CONNECTOR", Severity.INFO),
        ("python3 app.py --where=${PLACE}", Severity.INFO),
        ("$HOME/app.py", Severity.INFO),
        ("python3 app.py $PLACE", Severity.WARNING),
    ],
)
def test_a_variable_in_a_command_is_remarked_on(command, severity):
    (found,) = built(executableName=command).findings
    assert found.severity is severity
    assert found.text.endswith("is passed to the program as it is: the text is split on spaces only,"
                               " no shell reads it")  # fmt: skip
    assert "give --expand-env or KCL_MLD_EXPAND_ENV=true" in found.suggestion
