"""From a file to the effective configuration: the items of the conformance list, and our checks."""

from dataclasses import replace

import pytest

from kcl_mld.config.build import build_config
from kcl_mld.config.config import KEYS, ChildFailurePolicy, FanOutConfig, Kclpy, RetrievalMode
from kcl_mld.config.credentials import CredentialSource
from kcl_mld.config.findings import Finding, Severity
from kcl_mld.config.fleet import ClientVersionConfig
from kcl_mld.errors import ConfigError
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel

BASE = {
    "executableName": "app.py",
    "applicationName": "app",
    "streamName": "str",
    "AwsCredentialsProvider": "DefaultCredentialsProvider",
    "regionName": "us-east-1",
}
ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/abc"


def built(*lines, without=(), **more):
    """The base file without some lines, changed, and with lines added at its end."""
    entries = {name: value for name, value in (BASE | more).items() if name not in without}
    text = [f"{name} = {value}" for name, value in entries.items()]
    result = build_config("\n".join([*text, *lines]).encode(), "f", worker_id="fresh")
    # Said of most files here, which leave the retrieval mode at its default.
    said = "DEFAULT means enhanced fan-out because no polling property is set"
    kept = [f for f in result.findings if not f.text.startswith(said)]
    return replace(result, findings=tuple(kept))


def config(*lines, **more):
    return built(*lines, **more).require()


def errors(result):
    return [f.text for f in result.findings if f.severity is Severity.ERROR]


def warnings(result):
    return [f.text for f in result.findings if f.severity is Severity.WARNING]


def row(result, name):
    return next(setting for setting in result.settings if setting.key.name == name)


def test_the_base_file_has_nothing_to_complain_about():
    assert built().findings == ()


def test_settings_come_complete_and_in_the_order_of_the_table():
    result = built("fooBar = 1", "maxRecords = 5")
    assert [setting.key.name for setting in result.settings] == list(KEYS)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("executableName", "Must provide an executable name in the properties file, e.g. executableN"),
        ("applicationName", "Application name is required"),
        ("streamName", "Stream name or Stream Arn is required. Stream Arn takes precedence if both"),
        ("AwsCredentialsProvider", "A basic set of AWS credentials must be provided"),
    ],
)  # fmt: skip
def test_a_required_property_is_missed_in_javas_words(missing, text):
    (found,) = errors(built(without=[missing]))
    assert found.startswith(text)


def test_everything_wrong_is_said_at_once():
    result = build_config(b"metricsLevel = LOUD\nmaxLeasesForWorker = -1", "f", worker_id="w")
    assert len(errors(result)) == 6
    with pytest.raises(ConfigError) as caught:
        result.require()
    assert str(caught.value).count("\n") == 5
    assert "f:1: error: metricsLevel: 'LOUD'" in str(caught.value)


def test_findings_come_in_file_order_and_the_file_as_a_whole_last():
    result = built("foo = 1", "bar = 2", without=["streamName"])
    assert [finding.line for finding in result.findings] == [5, 6, None]


@pytest.mark.parametrize("name", ["", "  "])
def test_a_blank_application_name_is_missing(name):
    assert errors(built(applicationName=name)) == ["Application name is required"]


def test_credentials_for_dynamodb_alone_are_not_enough():
    result = built(
        "AwsCredentialsProviderDynamoDB = DefaultCredentialsProvider",
        without=["AwsCredentialsProvider"],
    )
    assert errors(result) == ["A basic set of AWS credentials must be provided"]


# --- the child


@pytest.mark.parametrize(
    ("command", "argv"),
    [
        ("python3  app.py  --x ", ("python3", "app.py", "--x")),
        ('"my prog" x', ('"my', 'prog"', "x")),
        ("a\tb c", ("a\tb", "c")),
        ("~/app *", ("~/app", "*")),
    ],
)
def test_the_command_is_split_on_blanks_only(command, argv):
    assert config(executableName=command).child.argv == argv


@pytest.mark.parametrize("command", ["", "\\ app.py"])
def test_a_command_without_a_program_is_an_error(command):
    assert "names no program" in errors(built(executableName=command))[0]


def test_quotes_in_a_command_are_suspicious():
    assert "quotes are passed" in warnings(built(executableName="'my prog'"))[0]


def test_times_of_the_child():
    child = config("timeoutInSeconds = 5", "logWarningForTaskAfterMillis = 1500").child
    assert (child.answer_timeout_s, child.warn_after_s) == (5.0, 1.5)
    assert (config().child.answer_timeout_s, config().child.warn_after_s) == (None, None)


def test_restart_settings_of_the_child():
    child = config(
        "childFailurePolicy = restart",
        "childRestartBackoffMillis = 250",
        "childRestartMaxAttempts = 3",
    ).child
    assert child.failure_policy is ChildFailurePolicy.RESTART
    assert (child.restart_backoff_s, child.restart_attempts) == (0.25, 3)


def test_children_are_forked_where_the_file_says_so():
    child = config("childPrefork = true", "childPreload = pandas, boto3").child
    assert (child.prefork, child.preload) == (True, ("pandas", "boto3"))
    assert (config().child.prefork, config().child.preload) == (False, ())


def test_which_amazon_kclpy_children_import():
    assert config().child.kclpy is Kclpy.AUTO
    assert config("kclpy = bundled").child.kclpy is Kclpy.BUNDLED


@pytest.mark.parametrize(
    "line",
    [
        "childFailurePolicy = ignore",
        "childRestartMaxAttempts = 0",
        "leaseCleanupIntervalMillis = x",
    ],
)
def test_a_malformed_value_of_our_own_property_is_an_error(line):
    assert len(errors(built(line))) == 1


def test_our_own_property_is_remarked_on_but_not_suspicious():
    (finding,) = built("childFailurePolicy = exit").findings
    assert finding.severity is Severity.INFO


# --- the worker


def test_a_worker_without_a_name_gets_the_fresh_one():
    result = built()
    assert result.require().worker_id == "fresh"
    assert row(result, "workerId").origin == "generated"


@pytest.mark.parametrize(
    ("prefix", "worker_id"),
    [("{hostname}", "pod-7-fresh"), ("blue-{hostname}", "blue-pod-7-fresh"), ("a", "a-fresh")],
)
def test_a_fresh_name_may_begin_with_a_prefix(prefix, worker_id):
    lines = [f"{name} = {value}" for name, value in BASE.items()]
    data = "\n".join([*lines, f"workerIdPrefix = {prefix}"]).encode()
    result = build_config(data, "f", worker_id="fresh", host_name="pod-7")
    assert result.require().worker_id == worker_id
    assert row(result, "workerId").origin == "generated"


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        ("", "must not be empty"),
        ("{hostname}", "this machine has no host name"),
        ("{pod}", "only {hostname} is replaced; no other '{', '}' or '$' may be in it"),
        ("$HOSTNAME", "only {hostname} is replaced; no other '{', '}' or '$' may be in it"),
    ],
)
def test_a_prefix_that_can_not_be_right_is_an_error(prefix, why):
    assert errors(built(f"workerIdPrefix = {prefix}")) == [why]


def test_a_prefix_beside_a_name_has_no_effect():
    result = built("workerId = me", "workerIdPrefix = a")
    assert result.require().worker_id == "me"
    (finding,) = (one for one in result.findings if one.severity is Severity.WARNING)
    assert str(finding).endswith("no effect beside workerId (remove one of the two lines)")


@pytest.mark.parametrize("name", ["workerId", "workerIdentifier"])
def test_a_worker_may_be_named_by_two_keys(name):
    assert config(f"{name} = me").worker_id == "me"


@pytest.mark.parametrize("value", ["", "\\  "])
def test_an_empty_worker_name_is_an_error(value):
    assert errors(built(f"workerId = {value}")) == ["must not be empty"]


@pytest.mark.parametrize(
    ("lines", "seconds"),
    [
        ([], 20.0),
        (["shutdownGraceMillis = 0"], 0.0),
        (["shutdownGraceMillis = 5000"], 5.0),
        (["shutdownGraceMillis = 5s"], 20.0),
        (["shutdownGraceMillis = -1"], 0.0),
    ],
)
def test_the_time_for_a_graceful_stop(lines, seconds):
    assert config(*lines).shutdown_grace_s == seconds


# --- streams


def test_the_name_inside_an_arn_wins():
    result = built(f"streamArn = {ARN}")
    assert result.require().stream.name == "abc"
    assert result.require().stream.arn == ARN
    assert warnings(result) == ["streamArn wins: abc is read"]
    assert row(result, "streamName").origin == "derived from streamArn"


def test_an_arn_alone_is_enough():
    assert built(f"streamArn = {ARN}", without=["streamName"]).findings == ()


@pytest.mark.parametrize("value", ["", "\\  "])
def test_a_blank_arn_is_ignored(value):
    assert config(f"streamArn = {value}").stream == config().stream


@pytest.mark.parametrize(("tail", "name"), [("abc/consumer/c:1", "abc"), ("a.b_c-1", "a.b_c-1")])
def test_a_qualifier_of_the_arn_is_not_part_of_the_name(tail, name):
    stream = config(f"streamArn = {ARN[:-3]}{tail}").stream
    assert (stream.name, stream.arn) == (name, ARN[:-3] + name)


@pytest.mark.parametrize(
    ("arn", "text"),
    [
        ("foo", "Malformed ARN - doesn't start with 'arn:'"),
        ("arn", "Malformed ARN - doesn't start with 'arn:'"),
        ("arn:aws", "Malformed ARN - no AWS partition specified"),
        ("arn:aws:kinesis", "Malformed ARN - no service specified"),
        ("arn:aws:kinesis:us-east-1", "Malformed ARN - no AWS region specified"),
        ("arn:aws:kinesis:us-east-1:123456789012", "Malformed ARN - no AWS account specified"),
        ("arn:aws:kinesis:us-east-1:12:stream/a", "Invalid streamArn arn:aws:kinesis:us-east-1:12:"),
        ("arn:aws:sqs:us-east-1:123456789012:stream/a", "Invalid streamArn"),
        ("arn:aws:kinesis::123456789012:stream/a", "Invalid streamArn"),
        ("arn:aws:kinesis:us-east-1:123456789012:stream:a", "Invalid streamArn"),
        ("arn:aws:kinesis:us-east-1:123456789012:streams/a", "Invalid streamArn"),
        ("arn:aws:kinesis:us-east-1:123456789012:stream/", "Invalid streamArn"),
        ("arn:aws:kinesis:us-east-1:123456789012:stream//a", "Invalid streamArn"),
    ],
)  # fmt: skip
def test_a_malformed_arn_is_an_error(arn, text):
    (found,) = errors(built(f"streamArn = {arn}", without=["streamName"]))
    assert found.startswith(text)


def test_an_arn_in_another_region_is_refused():
    (found,) = errors(built(f"streamArn = {ARN}", regionName="eu-west-1"))
    assert "the Java daemon would read the stream abc of eu-west-1 instead" in found


def test_an_arn_in_another_region_is_read_when_it_is_to_be_addressed():
    result = built(f"streamArn = {ARN}", "streamArnAddressing = arn", regionName="eu-west-1")
    assert result.require().stream.arn_addressing
    assert result.require().aws.kinesis_region == "us-east-1"
    assert result.require().stream.region == "eu-west-1"
    assert row(result, "kinesisClient.region").origin == "derived from streamArn"


def test_a_kinesis_region_must_be_the_addressed_arns():
    lines = [f"streamArn = {ARN}", "streamArnAddressing = arn", "kinesisClient.region = eu-west-1"]
    assert errors(built(*lines)) == ["is eu-west-1, but streamArn is in us-east-1"]
    lines[2] = "kinesisClient.region = us-east-1"
    assert config(*lines).aws.kinesis_region == "us-east-1"


def test_the_region_of_the_kinesis_client_counts_before_the_common_one():
    lines = [f"streamArn = {ARN}", "kinesisClient.region = us-east-1"]
    assert config(*lines, regionName="eu-west-1").stream.arn == ARN


def test_an_arn_without_any_region_in_the_file_is_compared_later():
    assert config(f"streamArn = {ARN}", without=["regionName"]).stream.arn == ARN


def test_addressing_by_arn_needs_an_arn():
    assert errors(built("streamArnAddressing = arn")) == ["arn needs a streamArn"]


def test_the_arn_of_kclpys_sample_gives_the_name_only():
    sample = "arn:aws:kinesis:us-east-5:000000000000:stream/kclpysample"
    result = built(f"streamArn = {sample}", streamName="kclpysample")
    assert result.require().stream.name == "kclpysample"
    assert result.require().stream.arn is None
    assert warnings(result) == [
        "is a sample's: only the name is used, and kclpysample is read in us-east-1"
    ]


@pytest.mark.parametrize("name", ["a b", "name\\ \\ ", "x" * 129])
def test_a_name_that_no_stream_can_have_is_an_error(name):
    assert "not a valid stream name" in errors(built(streamName=name))[-1]


# --- tables


def test_the_table_is_the_applications_unless_named():
    assert config().leases.table_name == "app"
    assert config("tableName =").leases.table_name == "app"
    assert config("tableName = leases").leases.table_name == "leases"


@pytest.mark.parametrize("name", ["ab", "app  ", "a/b/c", "x" * 256])
def test_a_name_that_no_table_can_have_is_an_error(name):
    (found,) = errors(built(applicationName=name))
    assert "not a valid table name" in found
    assert built("tableName = leases", applicationName=name).config is not None


def test_a_bad_table_name_is_reported_at_its_own_line():
    (finding,) = built("tableName = a b").findings
    assert (finding.key, finding.line) == ("tableName", 6)


# --- credentials


def test_each_client_may_have_a_chain_of_its_own():
    aws = config(
        "AWSCredentialsProviderDynamoDB = ProfileCredentialsProvider|x",
        "awsCredentialsProviderCloudWatch = AnonymousCredentialsProvider",
    ).aws
    assert aws.kinesis_credentials.steps[0].source is CredentialSource.DEFAULT
    assert aws.dynamodb_credentials.steps[0].profile == "x"
    assert aws.cloudwatch_credentials.steps[0].source is CredentialSource.ANONYMOUS
    assert (config().aws.dynamodb_credentials, config().aws.cloudwatch_credentials) == (None, None)


@pytest.mark.parametrize("value", ["NoSuchProvider", "", "SystemPropertiesCredentialsProvider"])
def test_a_chain_of_nothing_is_an_error(value):
    assert errors(built(AwsCredentialsProvider=value)) == [
        "No credential providers were specified."
    ]


@pytest.mark.parametrize("key", ["AWSCredentialsProvider", "AwsCredentialsProvider"])
def test_a_file_of_a_2x_fleet_is_served_with_a_warning_at_its_line(key):
    text = f"""executableName = app.py
applicationName = app
streamName = str
{key} = DefaultAWSCredentialsProviderChain
{key}DynamoDB = KclSTSAssumeRoleSessionCredentialsProvider|arn:aws:iam::123456789012:role/r|sess
regionName = us-east-1
retrievalMode = POLLING
"""
    result = build_config(text.encode(), "f", worker_id="w")
    aws = result.require().aws
    assert aws.kinesis_credentials.steps[0].source is CredentialSource.DEFAULT
    assert aws.dynamodb_credentials.steps[0].role.session_name == "sess"
    assert [(f.line, f.severity) for f in result.findings] == [(4, "warning"), (5, "warning")]


def test_credentials_given_twice_in_two_spellings_are_an_error():
    result = built("AWSCredentialsProvider = DefaultCredentialsProvider")
    assert errors(result) == ["given twice, first in line 4; Java refuses to start as well"]


def test_a_warning_about_credentials_names_its_line():
    result = built(AwsCredentialsProvider="Foo, DefaultCredentialsProvider")
    assert [(finding.line, finding.severity) for finding in result.findings] == [(4, "warning")]


# --- endpoints and regions


def test_endpoints_and_regions_go_to_their_clients():
    aws = config(
        "kinesisEndpoint = http://k:1",
        "dynamoDBEndpoint = http://d:2",
        "cloudWatchEndpoint = http://c:3",
        "dynamoDbClient.region = us-east-2",
        "cloudWatchClient.region = us-west-2",
    ).aws
    assert (aws.kinesis_endpoint, aws.dynamodb_endpoint) == ("http://k:1", "http://d:2")
    assert aws.cloudwatch_endpoint == "http://c:3"
    assert (aws.kinesis_region, aws.dynamodb_region) == (None, "us-east-2")
    assert aws.cloudwatch_region == "us-west-2"


def test_no_region_in_the_file_is_left_to_the_environment():
    assert config(without=["regionName"]).stream.region is None


def test_javas_name_of_the_cloudwatch_endpoint_is_not_remarked_on():
    result = built("cloudWatchClient.endpointOverride = http://c:3")
    assert result.require().aws.cloudwatch_endpoint == "http://c:3"
    assert result.findings == ()


def test_an_endpoint_without_a_scheme_is_an_error():
    (found,) = errors(built("kinesisEndpoint = kinesis.us-east-1.amazonaws.com"))
    assert found.startswith("'kinesis.us-east-1.amazonaws.com' has no http:// or https:// in front")


def test_flags_of_clients_hold_for_all():
    flags = [
        f"{c}.fipsEnabled = true" for c in ("kinesisClient", "dynamoDbClient", "cloudWatchClient")
    ]
    assert config(*flags).aws.use_fips is True
    assert built(*flags).findings == ()
    assert config().aws.use_fips is None
    one = built("dynamoDbClient.dualstackEnabled = false")
    assert one.require().aws.use_dualstack is False
    assert warnings(one) == ["holds for all clients in kcl-mld, not only for this one"]
    two = built("kinesisClient.fipsEnabled = true", "dynamoDbClient.fipsEnabled = false")
    assert "differs from kinesisClient.fipsEnabled" in errors(two)[0]


# --- start position


@pytest.mark.parametrize(
    ("lines", "position"),
    [
        ([], InitialPosition(Sentinel.LATEST)),
        (["initialPositionInStream = TriM_Horizon"], InitialPosition(Sentinel.TRIM_HORIZON)),
        (
            ["initialPositionInStreamExtended = 1617406032"],
            InitialPosition(Sentinel.AT_TIMESTAMP, 1617406032.0),
        ),
        (
            ["initialPositionInStream = LATEST", "initialPositionInStreamExtended = 5"],
            InitialPosition(Sentinel.AT_TIMESTAMP, 5.0),
        ),
        (
            ["initialPositionInStreamExtended = 5", "initialPositionInStream = TRIM_HORIZON"],
            InitialPosition(Sentinel.TRIM_HORIZON),
        ),
    ],
)
def test_the_start_position_is_that_of_the_later_line(lines, position):
    result = built(*lines)
    assert result.require().stream.initial_position == position
    assert len(result.findings) == (len(lines) == 2)


def test_a_timestamp_has_a_property_of_its_own():
    (finding,) = built("initialPositionInStream = AT_TIMESTAMP").findings
    assert finding.text == "Invalid InitialPosition: AT_TIMESTAMP"
    assert "initialPositionInStreamExtended" in finding.suggestion


@pytest.mark.parametrize("value", ["null", "1.5", "-1", "5\\ "])
def test_a_malformed_timestamp_is_an_error(value):
    assert len(errors(built(f"initialPositionInStreamExtended = {value}"))) == 1


# --- retrieval


@pytest.mark.parametrize(
    ("lines", "mode"),
    [
        ([], RetrievalMode.FANOUT),
        (["maxRecords = 10"], RetrievalMode.POLLING),
        (["maxRecords = 0"], RetrievalMode.FANOUT),
        (["maxRecords = junk"], RetrievalMode.FANOUT),
        (["idleTimeBetweenReadsInMillis = 1000"], RetrievalMode.POLLING),
        (["millisBehindLatestThresholdForReducedTps = 0"], RetrievalMode.FANOUT),
        (["retryGetRecordsInSeconds = 0"], RetrievalMode.POLLING),
        (["maxGetRecordsThreadPool = junk"], RetrievalMode.POLLING),
        (["fanoutConfig.consumerName = x"], RetrievalMode.FANOUT),
        (["retrievalMode = polling"], RetrievalMode.POLLING),
        (["retrievalMode = fanout", "maxRecords = 10"], RetrievalMode.FANOUT),
        (["retrievalMode = DEFAULT", "pollingConfig.maxRecords = 10"], RetrievalMode.POLLING),
    ],
)
def test_the_default_mode_polls_if_any_polling_property_counts(lines, mode):
    assert config(*lines).retrieval.mode is mode


def test_fan_out_by_default_is_said_with_its_cost_and_the_way_out():
    data = "\n".join(f"{name} = {value}" for name, value in BASE.items()).encode()
    (finding,) = build_config(data, "f", worker_id="w").findings
    assert (finding.severity, finding.key) == (Severity.INFO, "retrievalMode")
    assert "which AWS bills" in finding.text
    assert "POLLING" in finding.suggestion
    for line in (b"\nretrievalMode = DEFAULT", b"\nretrievalMode = default"):
        (finding,) = build_config(data + line, "f", worker_id="w").findings
        assert finding.line == 6
    assert build_config(data + b"\nretrievalMode = fanout", "f", worker_id="w").findings == ()


@pytest.mark.parametrize(
    "key", ["executableName", "spark.sink.path", "stream.a.executableName", "workerId"]
)
def test_a_value_with_nul_is_refused_where_it_stands(key):
    result = built(f"{key} = /a\\u0000b")
    (finding,) = (one for one in result.findings if "the character NUL" in one.text)
    assert (finding.key, finding.severity) == (key, Severity.ERROR)
    assert finding.line is not None


def test_the_consumer_of_fan_out():
    assert config().retrieval.fan_out == FanOutConfig()
    lines = [
        "fanoutConfig.consumerArn = arn:aws:kinesis:us-east-1:123456789012:stream/str/consumer/c:1",
        "fanoutConfig.consumerName = c",
        "fanoutConfig.maxDescribeStreamSummaryRetries = 1",
        "fanoutConfig.maxDescribeStreamConsumerRetries = 2",
        "fanoutConfig.registerStreamConsumerRetries = 3",
        "fanoutConfig.retryBackoffMillis = 250",
    ]
    result = built(*lines)
    assert result.findings == ()
    assert result.require().retrieval.fan_out == FanOutConfig(
        consumer_arn="arn:aws:kinesis:us-east-1:123456789012:stream/str/consumer/c:1",
        consumer_name="c",
        summary_attempts=1,
        describe_attempts=2,
        register_attempts=3,
        backoff_s=0.25,
    )


def test_polling_by_default_is_said_at_the_line_that_causes_it():
    (finding,) = built("maxRecords = 10").findings
    assert (finding.severity, finding.line) == (Severity.INFO, 6)
    assert "DEFAULT means polling because maxRecords is set" in finding.text


def test_too_many_records_are_an_error_when_polling_and_ignored_with_fan_out():
    assert "less than or equal to 10000" in errors(built("maxRecords = 20000"))[0]
    result = built("maxRecords = 20000", "retrievalMode = fanout")
    assert result.require().retrieval.max_records == 10_000
    assert len(warnings(result)) == 1


def test_a_short_pause_between_reads_is_raised():
    result = built("idleTimeBetweenReadsInMillis = 50", "retrievalMode = POLLING")
    assert result.require().retrieval.idle_s == 0.2
    assert warnings(result) == ["50 is raised to 200, as in Java"]
    assert row(result, "idleTimeBetweenReadsInMillis").value == 200


def test_a_negative_threshold_for_reduced_calls_is_off():
    result = built("millisBehindLatestThresholdForReducedTps = -5", "retrievalMode = POLLING")
    assert result.require().retrieval.reduced_tps_threshold_s == 0
    assert len(warnings(result)) == 1


# --- numbers and flags into their sections


@pytest.mark.parametrize(
    ("line", "section", "field", "value"),
    [
        ("failoverTimeMillis = 20000   ", "leases", "failover_s", 20.0),
        ("failoverTimeMillis = 100nf", "leases", "failover_s", 10.0),
        ("maxLeasesForWorker = 5", "leases", "max_leases_for_worker", 5),
        ("maxLeasesToStealAtOneTime = 5", "leases", "max_leases_to_steal", 5),
        ("enablePriorityLeaseAssignment = no", "leases", "enable_priority", False),
        ("maxLeaseRenewalThreads = 2", "leases", "renewal_threads", 2),
        ("leaseTableScanTotalSegments = 4", "leases", "scan_segments", 4),
        ("leaseTableDeletionProtectionEnabled = on", "leases", "deletion_protection", True),
        ("leaseTablePitrEnabled = 1", "leases", "point_in_time_recovery", True),
        ("shardSyncIntervalMillis = 1000", "shards", "sync_interval_s", 1.0),
        ("ignoreUnexpectedChildShards = true", "shards", "ignore_unexpected_children", True),
        ("cleanupLeasesUponShardCompletion = false", "shards", "cleanup_completed", True),
        ("skipShardSyncAtWorkerInitializationIfLeasesExist = true", "shards", "skip_sync_if_leases_exist", True),
        ("listShardsBackoffTimeInMillis = 100", "shards", "list_backoff_s", 0.1),
        ("maxListShardsRetryAttempts = 3", "shards", "list_attempts", 3),
        ("parentShardPollIntervalMillis = 100", "shards", "parent_poll_s", 0.1),
        ("leaseCleanupIntervalMillis = 100", "shards", "cleanup_interval_s", 0.1),
        ("completedLeaseCleanupIntervalMillis = 100", "shards", "completed_cleanup_s", 0.1),
        ("garbageLeaseCleanupIntervalMillis = 100", "shards", "garbage_cleanup_s", 0.1),
        ("schedulerInitializationBackoffTimeMillis = 100", "shards", "initialization_backoff_s", 0.1),
        ("callProcessRecordsEvenForEmptyRecordList = true", "retrieval", "call_even_if_empty", True),
        ("aggregatedRecordsOutsideShard = deliver", "retrieval", "deliver_outside_shard", True),
        ("aggregatedRecordsOutsideShard = drop", "retrieval", "deliver_outside_shard", False),
        ("taskBackoffTimeMillis = 100", "retrieval", "task_backoff_s", 0.1),
        ("metricsLevel = none", "metrics", "level", "NONE"),
        ("metricsBufferTimeMillis = 100", "metrics", "buffer_s", 0.1),
        ("metricsMaxQueueSize = 5", "metrics", "max_queue", 5),
        ("metricsEnabledDimensions = ALL", "metrics", "enabled_dimensions", None),
        ("metricsEnabledDimensions = ShardId, WorkerIdentifier", "metrics", "enabled_dimensions",
         ("ShardId", "WorkerIdentifier")),
    ],
)  # fmt: skip
def test_a_property_reaches_its_field(line, section, field, value):
    assert getattr(getattr(config(line), section), field) == value


def test_defaults_of_the_file_are_those_of_the_configuration():
    plain = config()
    assert plain.leases == type(plain.leases)(table_name="app")
    assert plain.shards == type(plain.shards)()
    assert plain.child == type(plain.child)(argv=("app.py",), shown="app.py")
    assert plain.metrics == type(plain.metrics)()
    assert plain.retrieval == type(plain.retrieval)(mode=RetrievalMode.FANOUT)
    assert plain.fleet == type(plain.fleet)()
    assert plain.processing_language is None


@pytest.mark.parametrize(
    ("lines", "field", "value"),
    [
        (
            ["clientVersionConfig = CLIENT_VERSION_CONFIG_3X"],
            "client_version",
            ClientVersionConfig.STAY_3X,
        ),
        (
            ["clientVersionConfig = client_version_config_compatible_with_2x"],
            "client_version",
            ClientVersionConfig.UPGRADE,
        ),
        (
            ["clientVersionConfig = CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"],
            "client_version",
            ClientVersionConfig.STAY_2X,
        ),
        (["coordinatorStateTableName = state"], "coordinator_table", "state"),
        (["workerMetricsTableName = load"], "metrics_table", "load"),
        (["migrateAllEntitiesToLeaseTable = true"], "migrates_tables", True),
        (["tableMigrationCompleteBakeTimeSeconds = 1"], "bake_s", 3600),
        (["tableMigrationCompleteBakeTimeSeconds = 9999999"], "bake_s", 604800),
        (["disableWorkerMetrics = true"], "measures", False),
        (["inMemoryWorkerMetricsCaptureFrequencyMillis = 2000"], "sample_s", 2.0),
        (["workerMetricsReporterFreqInMillis = 10000"], "report_s", 10.0),
        (["noOfPersistedMetricsPerWorkerMetrics = 3"], "samples", 3),
        (["failoverTimeMillis = 30000"], "lock_duration_s", 24.0),
        (["failoverTimeMillis = 100"], "lock_duration_s", 1.0),
        (["dynamoDbLockBasedLeaderLeaseDurationInMillis = 120000"], "lock_heartbeat_s", 60.0),
        (["dynamoDbLockBasedLeaderHeartbeatPeriodInMillis = 1000"], "lock_duration_s", 2.0),
    ],
)
def test_a_file_says_how_its_workers_are_one_of_a_fleet(lines, field, value):
    assert getattr(config(*lines).fleet, field) == value


def test_a_lock_that_its_heartbeats_cannot_keep_is_an_error():
    found = built(
        "dynamoDbLockBasedLeaderLeaseDurationInMillis = 1000",
        "dynamoDbLockBasedLeaderHeartbeatPeriodInMillis = 501",
    )
    (finding,) = [one for one in found.findings if one.severity is Severity.ERROR]
    assert "more than half" in finding.text
    assert "to 500 or less" in finding.suggestion


NUMBERS = [name for name, key in KEYS.items() if key.kind.startswith(("number", "milliseconds"))]


@pytest.mark.parametrize("number", [1, 1003, 2**31 - 1, 2**63 - 1])
@pytest.mark.parametrize("name", NUMBERS)
def test_an_error_about_one_key_in_the_file_names_that_key(name, number):
    found = [one for one in built(f"{name} = {number}").findings if one.severity is Severity.ERROR]
    assert {one.key for one in found} <= {name}
    assert all(one.line for one in found)


def test_the_tables_of_a_fleet_are_named_by_the_application_or_the_file():
    plain = Layout.of(config("tableName = leases"))
    assert (plain.lease_table, plain.coordinator_table) == ("leases", "app-CoordinatorState")
    named = Layout.of(config("workerMetricsTableName = load"))
    assert named.metrics_table == "load"


def test_a_dimension_that_no_metric_has_is_reported_and_kept():
    result = built("metricsEnabledDimensions = ShardID, Shoesize")
    assert result.require().metrics.enabled_dimensions == ("ShardID", "Shoesize")
    assert [finding.suggestion[:24] for finding in result.findings] == [
        "did you mean ShardId?",
        "known: ALL, Operation, S",
    ]


# --- lines that do nothing, or not what they seem to


def test_an_overridden_line_is_reported():
    assert warnings(built("maxLeasesForWorker = 1", "maxLeasesForWorker = 2")) == [
        "overridden by line 7"
    ]
    assert (
        config("maxLeasesForWorker = 1", "maxLeasesForWorker = 2").leases.max_leases_for_worker == 2
    )


def test_two_names_of_one_property_are_reported_and_the_later_wins():
    result = built("workerId = a", "workerIdentifier = b")
    assert result.require().worker_id == "b"
    assert warnings(result) == [
        "overridden by workerIdentifier in line 7, which is the same property"
    ]


def test_an_unknown_name_has_no_effect_but_a_warning():
    assert config("fooBar = 1", "FailoverTimeMillis = 1") == config()
    assert len(warnings(built("fooBar = 1", "FailoverTimeMillis = 1"))) == 2


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("maxActiveThreads = 5", Severity.INFO),
        ("validateSequenceNumberBeforeCheckpointing = true", Severity.WARNING),
    ],
)
def test_what_is_not_used_is_said(line, severity):
    (finding,) = built(line).findings
    assert finding.severity is severity
    assert config(line)


def test_utf_8_in_a_value_is_suspicious_because_java_reads_latin_1():
    result = built("workerId = J\u00fcrgen")
    assert result.require().worker_id == "J\u00c3\u00bcrgen"
    assert result.findings[0].suggestion == "write J\\xfcrgen"


def test_secrets_are_masked_in_settings_and_findings():
    result = built(
        "secretKey = geheim",
        "workerId = AKIAIOSFODNN7EXAMPLE",
        "cloudWatchEndpoint = http://me:geheim@x",
        "maxActiveThreads = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AKIAIOSFODNN7EXAMPLE = 1",
        AwsCredentialsProvider="StsAssumeRoleCredentialsProvider|a|b|externalId=geheim",
    )
    shown = "".join(setting.shown for setting in result.settings)
    shown += "".join(str(finding) for finding in result.findings)
    assert "geheim" not in shown
    assert "AKIA" not in shown
    assert "wJalr" not in shown


def test_values_are_shown_as_they_would_be_written():
    result = built("workerMetricsTags = a=b, c=d", "metricsEnabledDimensions = ShardId")
    assert row(result, "workerMetricsTags").shown == "a=b, c=d"
    assert row(result, "metricsEnabledDimensions").shown == "ShardId"
    assert row(result, "cleanupLeasesUponShardCompletion").shown == "true"
    assert row(result, "timeoutInSeconds").shown == ""
    assert row(result, "streamName").origin == "f:3"
    assert row(result, "metricsLevel").origin == "default"
    assert row(built("maxRecords = 0"), "maxRecords").origin == "default (f:6 unset)"


def test_a_finding_reads_like_a_compilers():
    assert (
        str(Finding(Severity.ERROR, "f", 3, "k", "text", "advice"))
        == "f:3: error: k: text (advice)"
    )
    assert str(Finding(Severity.INFO, "f", None, None, "text")) == "f: info: text"


def test_a_broken_escape_ends_the_reading():
    with pytest.raises(ConfigError, match=r"^f:6: Malformed"):
        built("x = \\u12")


# --- schemas


@pytest.mark.parametrize(
    ("lines", "enabled", "decode"),
    [
        ((), False, False),
        (("glueSchemaRegistry.enabled = false",), False, False),
        (("glueSchemaRegistry.enabled = true",), True, False),
        (("glueSchemaRegistry.enabled = TRUE", "glueSchemaRegistry.mode = pass"), True, False),
        (("glueSchemaRegistry.enabled = true", "glueSchemaRegistry.mode = Decode"), True, True),
    ],
)
def test_the_schema_registry_is_off_unless_it_is_switched_on(lines, enabled, decode):
    result = built(*lines)
    schemas = result.require().schemas
    assert (schemas.enabled, schemas.decode) == (enabled, decode)
    assert warnings(result) == []


@pytest.mark.parametrize(
    "line",
    ["glueSchemaRegistry.enabled = yes", "glueSchemaRegistry.mode = avro", "glueEndpoint = x"],
)
def test_a_wrong_value_of_the_schema_registry_is_an_error(line):
    (finding,) = [f for f in built(line).findings if f.severity is Severity.ERROR]
    assert finding.key == line.partition(" ")[0]


@pytest.mark.parametrize(
    "line",
    [
        "glueSchemaRegistry.mode = decode",
        "glueEndpoint = http://localhost:1",
        "glueClient.region = eu-west-1",
        "AwsCredentialsProviderGlue = ProfileCredentialsProvider|glue",
    ],
)
def test_what_has_no_effect_without_the_schema_registry_is_told(line):
    (finding,) = [f for f in built(line).findings if f.severity is Severity.WARNING]
    assert finding.key == line.partition(" ")[0]
    assert "not enabled" in finding.text
    assert warnings(built(line, "glueSchemaRegistry.enabled = true")) == []


def test_glue_has_endpoint_region_and_credentials_of_its_own():
    aws = config(
        "glueSchemaRegistry.enabled = true",
        "glueEndpoint = http://localhost:1",
        "glueClient.region = eu-west-1",
        "AwsCredentialsProviderGlue = ProfileCredentialsProvider|glue",
    ).aws
    assert (aws.glue_endpoint, aws.glue_region) == ("http://localhost:1", "eu-west-1")
    assert aws.glue_credentials is not None
    assert aws.glue_credentials.steps[0].profile == "glue"
    wrong = built(
        "glueSchemaRegistry.enabled = true",
        "glueEndpoint = https://kinesis.us-east-1.amazonaws.com",
    )
    assert errors(wrong) == ["is an endpoint of kinesis, not of glue"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("glueSchemaRegistry.Enabled", "glueSchemaRegistry.enabled"),
        ("schemaRegistry.enabled", None),
        ("glueSchemaRegistryEnabled", "glueSchemaRegistry.enabled"),
    ],
)
def test_a_misspelt_key_of_the_schema_registry_is_told(name, meant):
    (finding,) = built(f"{name} = true").findings
    assert finding.severity is Severity.WARNING
    assert meant is None or f"did you mean {meant}?" in finding.suggestion
