"""Values that every daemon accepts and hardly anybody means: each has its finding."""

import pytest

from kcl_mld.config.build import build_config
from tests.unit.config.test_config_build import BASE as ENOUGH

BASE = {**ENOUGH, "retrievalMode": "POLLING"}
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/abc"
ROLE = "StsAssumeRoleCredentialsProvider|arn:aws:iam::%s:role/reader|session"


def findings(**more):
    lines = [f"{name} = {value}" for name, value in (BASE | more).items() if value is not None]
    return build_config("\n".join(lines).encode(), "f", worker_id="fresh").findings


def only(key, **more):
    """The one finding, which must be about that key and name its line."""
    (finding,) = findings(**more)
    assert finding.key == key
    written = [name for name, value in (BASE | more).items() if value is not None]
    assert finding.line == written.index(key) + 1
    return finding


def test_a_usual_file_gives_no_finding():
    assert findings() == ()


# --- workerId


def test_a_worker_id_is_worth_a_remark():
    finding = only("workerId", workerId="w1")
    assert finding.severity == "info"
    assert "every live worker needs one of its own" in finding.text


@pytest.mark.parametrize(
    ("worker_id", "is_taken"), [("Leader", True), ("str", True), ("w1", False)]
)
def test_a_worker_id_that_is_the_key_of_another_item_is_told(worker_id, is_taken):
    warned = [f for f in findings(workerId=worker_id) if f.severity == "warning"]
    assert [f.key for f in warned] == ["workerId"] * is_taken
    assert all("a worker of a KCL 3.5 fleet can't have this id" in f.text for f in warned)


@pytest.mark.parametrize("text", ["w" * 2049, "é" * 1025, "w" * 1_000_000])
def test_a_worker_id_that_no_table_keeps_is_an_error(text):
    finding = next(f for f in findings(workerId=text) if f.severity == "error")
    assert finding.key == "workerId"
    assert "bytes; DynamoDB keeps names of workers up to 2048 bytes" in finding.text
    assert len(str(finding)) < 500


@pytest.mark.parametrize("text", ["w" * 1025, "caf\\u00e9"])
def test_a_worker_id_that_no_metric_bears_is_a_warning_where_metrics_are_sent(text):
    found = [f for f in findings(workerId=text) if f.severity == "warning"]
    assert [f.text.partition(":")[0] for f in found] == ["CloudWatch refuses it as a dimension"]
    quiet = findings(workerId=text, metricsLevel="NONE")
    assert [f.severity for f in quiet] == ["info"]


@pytest.mark.parametrize("text", ["${HOSTNAME}", "$POD", "{hostname}"])
def test_a_worker_id_with_a_placeholder_is_a_warning(text):
    """Two replicas had the same literal id: 40 records were delivered 60 times."""
    (warned,) = (f for f in findings(workerId=text) if f.severity == "warning")
    assert "is taken as it stands, as in Java" in warned.text
    assert "workerIdPrefix = {hostname}" in str(warned)


@pytest.mark.parametrize(
    ("prefix", "severity"), [("w" * 2049, "error"), ("w" * 1025, "warning"), ("w", None)]
)
def test_a_prefix_is_as_long_as_a_worker_id_may_be(prefix, severity):
    found = [f for f in findings(workerIdPrefix=prefix) if f.severity != "info"]
    assert [(f.key, f.severity) for f in found] == [("workerIdPrefix", severity)] * bool(severity)


def test_an_application_name_that_is_no_namespace_is_a_warning_where_metrics_are_sent():
    long = {"applicationName": "a" * 256, "tableName": "table"}
    assert "CloudWatch refuses it as a namespace" in only("applicationName", **long).text
    assert findings(**long, metricsLevel="NONE") == ()


# --- units


@pytest.mark.parametrize("key", ["failoverTimeMillis", "shutdownGraceMillis"])
def test_seconds_in_a_key_of_milliseconds(key):
    finding = only(key, **{key: "300"})
    assert (finding.severity, finding.text) == ("warning", "300 milliseconds is very short")
    assert finding.suggestion == f"for 300 seconds write {key} = 300000"
    assert findings(**{key: "1000"}) == ()


def test_no_grace_is_no_slip():
    assert findings(shutdownGraceMillis="0") == ()


def test_milliseconds_in_a_key_of_seconds():
    finding = only("timeoutInSeconds", timeoutInSeconds="60000")
    assert (finding.severity, finding.text) == ("warning", "60000 seconds is 16.7 hours")
    assert findings(timeoutInSeconds="600") == ()
    finding = only(
        "initialPositionInStreamExtended", initialPositionInStreamExtended="1636609142000"
    )
    assert finding.severity == "error"
    assert finding.suggestion.endswith("write 1636609142")
    assert findings(initialPositionInStreamExtended="1636609142") == ()


# --- endpoints


@pytest.mark.parametrize(
    ("key", "host"),
    [
        ("kinesisEndpoint", "kinesis.eu-west-1.amazonaws.com"),
        ("kinesisEndpoint", "vpce-1-2.kinesis.eu-west-1.vpce.amazonaws.com"),
        ("dynamoDBEndpoint", "dynamodb-fips.eu-west-1.api.aws"),
        ("cloudWatchEndpoint", "monitoring.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_an_endpoint_of_another_region(key, host):
    found = [f for f in findings(**{key: f"https://{host}"}) if f.severity == "error"]
    assert [(f.key, "but regionName is us-east-1" in f.text) for f in found] == [(key, True)]


def test_an_endpoint_of_the_clients_own_region_or_of_nobodys_is_right():
    endpoint = "https://kinesis.eu-west-1.amazonaws.com"
    assert findings(kinesisEndpoint=endpoint, **{"kinesisClient.region": "eu-west-1"}) == ()
    assert findings(kinesisEndpoint=endpoint, regionName=None) == ()
    assert findings(kinesisEndpoint="http://localhost:4566") == ()


def test_blanks_around_an_endpoint():
    finding = only("kinesisEndpoint", kinesisEndpoint="http://localhost:4566 ")
    assert (finding.severity, finding.suggestion) == ("error", "remove the blanks around it")


def test_the_position_that_needs_another_key_is_not_suggested():
    finding = only("initialPositionInStream", initialPositionInStream="EARLIEST")
    assert finding.suggestion == "write one of LATEST, TRIM_HORIZON"


def test_an_endpoint_of_another_service():
    finding = only("kinesisEndpoint", kinesisEndpoint="https://dynamodb.us-east-1.amazonaws.com")
    assert (finding.severity, finding.text) == (
        "error",
        "is an endpoint of dynamodb, not of kinesis",
    )


# --- roles and ARNs


def test_a_role_and_a_session_that_sts_refuses():
    finding = only(
        "AwsCredentialsProviderDynamoDB",
        AwsCredentialsProviderDynamoDB="StsAssumeRoleCredentialsProvider| arn:aws:iam::1:role/r|session",
    )
    assert "is not the ARN of a role" in finding.text
    value = (ROLE % "123456789012").replace("session", "my session")
    finding = only("AwsCredentialsProvider", AwsCredentialsProvider=value)
    assert (finding.severity, "not a session name" in finding.text) == ("warning", True)


def test_a_role_of_another_account_than_the_stream():
    other = {"AwsCredentialsProvider": ROLE % "999999999999", "streamName": "abc"}
    finding = only("streamArn", streamArn=ARN, **other)
    assert finding.severity == "error"
    assert "assumes a role of account 999999999999" in finding.text
    own = other | {"AwsCredentialsProvider": ROLE % "123456789012"}
    assert findings(streamArn=ARN, **own) == ()
    # Whose credentials a chain will have is not known.
    mixed = {
        "AwsCredentialsProvider": other["AwsCredentialsProvider"] + ",DefaultCredentialsProvider"
    }
    assert findings(streamArn=ARN, **(other | mixed)) == ()
    meant = findings(streamArn=ARN, **other, streamArnAddressing="arn")
    assert {f.severity for f in meant} == {"info"}


def test_a_partition_that_the_region_is_not_of():
    arn = ARN.replace("us-east-1", "cn-north-1")
    finding = only("streamArn", streamArn=arn, streamName="abc", regionName="cn-north-1")
    assert finding.text == "cn-north-1 is of the partition aws-cn, not of aws"
    for partition, region in (
        ("aws-us-gov", "us-gov-west-1"),
        ("aws-iso", "us-iso-east-1"),
        ("aws-iso-b", "us-isob-east-1"),
        ("aws-eusc", "eusc-de-east-1"),
    ):
        arn = f"arn:{partition}:kinesis:{region}:123456789012:stream/abc"
        assert findings(streamArn=arn, streamName="abc", regionName=region) == ()


def test_a_consumer_of_another_stream():
    def about_consumer(arn):
        found = findings(streamArn=ARN, streamName="abc", **{"fanoutConfig.consumerArn": arn})
        return [f.text for f in found if "not used by kcl-mld" not in f.text]

    assert about_consumer(f"{ARN}/consumer/me:1") == []
    wrong = [f"is not the ARN of a consumer of {ARN}"]
    assert about_consumer(f"{ARN}d/consumer/me:1") == about_consumer("x") == wrong


@pytest.mark.parametrize(
    ("consumer", "severity"),
    [
        (f"{ARN}/consumer/me:1", None),
        (f"{ARN}d/consumer/me:1", "error"),
        (f"{ARN.replace('us-east-1', 'us-west-2')}/consumer/me:1", "error"),
        ("x", "error"),
    ],
)
def test_a_consumer_of_another_stream_than_the_named_one_is_refused(consumer, severity):
    def found(**more):
        line = {"fanoutConfig.consumerArn": consumer, "retrievalMode": "FANOUT"}
        return [
            (f.severity, f.text)
            for f in findings(streamName="abc", **(line | more))
            if f.key == "fanoutConfig.consumerArn"
        ]

    text = "is not the ARN of a consumer of the stream abc"
    assert found() == ([(severity, text)] if severity else [])
    polling = found(retrievalMode="POLLING")
    assert ("warning", text) in polling if severity else (severity, text) not in polling


def test_a_name_where_an_arn_belongs_and_an_arn_where_a_name_belongs():
    finding = only("streamArn", streamName=None, streamArn="my-stream")
    assert finding.suggestion == "write streamName = my-stream"
    finding = only("streamName", streamName=ARN)
    assert finding.suggestion == "write streamArn = …"


# --- blanks, quotes, comments


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("us_east_1", "us-east-1"),
        ('"us-east-1"', "us-east-1"),
        ("US-EAST-1", "us-east-1"),
        ("us-east1", "us-east-1"),
        ("us-east-1a", "us-east-1"),
        ("us east 1", "us-east-1"),
        ("europe", None),
        ("eu/west", None),
    ],
)
def test_a_region_in_another_spelling(text, meant):
    finding = only("regionName", regionName=text)
    assert finding.suggestion == (f"did you mean {meant}?" if meant else "such as us-east-1")
    assert (finding.severity == "error") is any(char in text for char in '_" /')


def test_quotes_are_part_of_a_value():
    found = findings(workerId='"workerId"')
    assert [f.text for f in found if f.severity == "warning"] == [
        'the quotes around "workerId" are part of the value'
    ]


def test_a_comment_behind_a_value_is_part_of_it():
    finding = only("processingLanguage", processingLanguage="python # the best")
    assert finding.text == "what follows # is part of the value, not a comment, as in Java"
    assert findings(processingLanguage="c#") == ()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("python\tapp.py", "contains a blank that is no space"),
        ("python app.py \t", "contains a blank that is no space"),
        ("python app.py && true", "'&&' is passed to the program as it is"),
        ("python app.py 2>&1", "'2>&1' is passed"),
        ("python $HOME/app.py", "'$HOME/app.py' is passed"),
        ("python ~/app.py", "'~/app.py' is passed"),
        ("python 'app.py'", "quotes are passed to the program"),
        ("\\u0020python", "names no program"),
    ],
)
def test_a_command_that_only_a_shell_would_read_so(command, text):
    finding = only("executableName", executableName=command)
    assert finding.text.startswith(text)


@pytest.mark.parametrize("command", ["app.py  ", "python  app.py --a=b&c", "app ;x $"])
def test_a_command_that_is_read_as_it_looks(command):
    assert findings(executableName=command) == ()


# --- backslashes


@pytest.mark.parametrize(
    ("value", "becomes", "meant"),
    [
        (r"/orders-\d+/", "/orders-d+/", r"/orders-\\d+/"),
        (r"C:\Programs\new", "C:Programs\new", r"C:\\Programs\\new"),
        (r"C:\temp", "C:\temp", r"C:\\temp"),
        (r"C\:\temp", "C:\temp", r"C\:\\temp"),
        (r"python C:\temp\\x", "python C:\temp\\x", r"python C:\\temp\\x"),
    ],
)
def test_a_backslash_that_is_eaten_is_a_warning(value, becomes, meant):
    finding = only("processingLanguage", processingLanguage=value)
    assert finding.severity == "warning"
    assert finding.text.endswith(f"so the value is {becomes!r}")
    assert finding.suggestion == f"write {meant}"


@pytest.mark.parametrize("value", [r"a\\d", r"a\=b\:c\#d\!e\ f", r"a\u0041", r"a\tb\nc", r"C:\\x"])
def test_an_escape_that_is_one_is_not_told(value):
    assert findings(processingLanguage=value) == ()


def test_backslashes_are_told_of_all_kinds_of_keys():
    more = {"stream.a.executableName": r"D:\app", "spark.kclmld.x": r"\d", "multiStream": "true"}
    told = {f.key for f in findings(**more) if "a backslash is an escape" in f.text}
    assert told == {"stream.a.executableName", "spark.kclmld.x"}


# --- names that AWS can't have


def test_a_consumer_name_that_kinesis_refuses_is_an_error_where_it_is_registered():
    name = "fanoutConfig.consumerName"
    more = {name: "my consumer", "retrievalMode": "FANOUT"}
    finding = only(name, **more)
    assert finding.severity == "error"
    assert "'my consumer' is not a name that Kinesis takes" in finding.text
    assert findings(**(more | {"retrievalMode": "POLLING"})) == ()
    assert findings(**(more | {name: "my-consumer"})) == ()
    assert only("applicationName", applicationName="a" * 129, retrievalMode="FANOUT")
    missing = findings(applicationName=" ", retrievalMode="FANOUT")
    assert [f.text for f in missing] == ["Application name is required"]


@pytest.mark.parametrize(
    ("pattern", "is_told"),
    [
        ("orders/*", True),
        ("arn:aws:kinesis:*", True),
        ("a b", True),
        ("orders-*, [a-c]?", False),
        ("/a:b/", False),
    ],
)
def test_a_pattern_that_no_name_can_match_is_told(pattern, is_told):
    more = {"streamName": None, "multiStream": "true", "streamNamePattern": pattern}
    told = [f for f in findings(**more) if f.severity == "warning"]
    assert len(told) == is_told
    assert all(f.key == "streamNamePattern" and "no stream has a name like" in f.text for f in told)


def test_keys_of_one_stream_are_judged_like_those_of_all():
    more = {
        "streamName": None,
        "multiStream": "true",
        "streams": "a",
        "stream.a.initialPositionInStreamExtended": "1700000000000",
        "stream.a.initialPositionInStream": "LATEST",
        "stream.a.executableName": "app.py # old",
        "stream.a/b.retrievalMode": "POLLING",
    }
    told = [(f.severity, f.key, f.text) for f in findings(**more) if f.severity != "info"]
    assert [(severity, key) for severity, key, _ in told] == [
        ("error", "stream.a.initialPositionInStreamExtended"),
        ("warning", "stream.a.initialPositionInStream"),
        ("warning", "stream.a.executableName"),
        ("warning", "stream.a/b.retrievalMode"),
        ("warning", "stream.a/b.retrievalMode"),
    ]
    assert "overridden by stream.a.initialPositionInStreamExtended in line 8" in told[1][2]


@pytest.mark.parametrize("nul", [r"\u0000", "\0"])
@pytest.mark.parametrize("key", ["executableName", "applicationName", "AwsCredentialsProvider"])
def test_a_nul_is_an_error_and_the_only_one(key, nul):
    finding = only(key, **{key: f"{BASE[key]}{nul}"})
    assert finding.severity == "error"
    assert "the character NUL" in finding.text
