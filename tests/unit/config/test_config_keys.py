"""The table of properties is complete, and names lead to the right row or to advice."""

import pytest

from kcl_mld.config.config import KEYS
from kcl_mld.config.findings import Severity
from kcl_mld.config.keys import Effect, Kind
from kcl_mld.config.settings import resolve
from tests.unit.config.test_config_build import built

#: Every name of the reference table, copied by hand.
REFERENCE = [
    "executableName",
    "processingLanguage",
    "maxActiveThreads",
    "applicationName",
    "streamName",
    "streamArn",
    "tableName",
    "workerId",
    "workerIdentifier",
    "timeoutInSeconds",
    "shutdownGraceMillis",
    "validateSequenceNumberBeforeCheckpointing",
    "AwsCredentialsProvider",
    "AwsCredentialsProviderDynamoDB",
    "AwsCredentialsProviderCloudWatch",
    "regionName",
    "kinesisEndpoint",
    "dynamoDBEndpoint",
    "initialPositionInStream",
    "initialPositionInStreamExtended",
    "retrievalMode",
    "maxRecords",
    "idleTimeBetweenReadsInMillis",
    "millisBehindLatestThresholdForReducedTps",
    "retryGetRecordsInSeconds",
    "maxGetRecordsThreadPool",
    "pollingConfig.maxRecords",
    "pollingConfig.idleTimeBetweenReadsInMillis",
    "pollingConfig.millisBehindLatestThresholdForReducedTps",
    "pollingConfig.retryGetRecordsInSeconds",
    "pollingConfig.maxGetRecordsThreadPool",
    "fanoutConfig.consumerArn",
    "fanoutConfig.consumerName",
    "fanoutConfig.maxDescribeStreamSummaryRetries",
    "fanoutConfig.maxDescribeStreamConsumerRetries",
    "fanoutConfig.registerStreamConsumerRetries",
    "fanoutConfig.retryBackoffMillis",
    "callProcessRecordsEvenForEmptyRecordList",
    "failoverTimeMillis",
    "leaseAssignmentIntervalMillis",
    "enablePriorityLeaseAssignment",
    "leaseTableDeletionProtectionEnabled",
    "leaseTablePitrEnabled",
    "shardSyncIntervalMillis",
    "cleanupLeasesUponShardCompletion",
    "ignoreUnexpectedChildShards",
    "maxLeasesForWorker",
    "maxLeasesToStealAtOneTime",
    "initialLeaseTableReadCapacity",
    "initialLeaseTableWriteCapacity",
    "leaseTableScanTotalSegments",
    "maxLeaseRenewalThreads",
    "listShardsBackoffTimeInMillis",
    "maxListShardsRetryAttempts",
    "parentShardPollIntervalMillis",
    "skipShardSyncAtWorkerInitializationIfLeasesExist",
    "schedulerInitializationBackoffTimeMillis",
    "shardPrioritization",
    "clientVersionConfig",
    "migrateAllEntitiesToLeaseTable",
    "tableMigrationCompleteBakeTimeSeconds",
    "taskBackoffTimeMillis",
    "logWarningForTaskAfterMillis",
    "metricsBufferTimeMillis",
    "metricsMaxQueueSize",
    "metricsLevel",
    "metricsEnabledDimensions",
    "gracefulLeaseHandoffTimeoutMillis",
    "isGracefulLeaseHandoffEnabled",
    "inMemoryWorkerMetricsCaptureFrequencyMillis",
    "workerMetricsReporterFreqInMillis",
    "noOfPersistedMetricsPerWorkerMetrics",
    "disableWorkerMetrics",
    "maxThroughputPerHostKBps",
    "dampeningPercentage",
    "reBalanceThresholdPercentage",
    "allowThroughputOvershoot",
    "varianceBalancingFrequency",
    "workerMetricsEMAAlpha",
    "staleWorkerMetricsEntryCleanupDuration",
    "workerMetricsTableName",
    "workerMetricsBillingMode",
    "workerMetricsReadCapacity",
    "workerMetricsWriteCapacity",
    "workerMetricsPointInTimeRecoveryEnabled",
    "workerMetricsDeletionProtectionEnabled",
    "workerMetricsTags",
    "coordinatorStateTableName",
    "coordinatorStateBillingMode",
    "coordinatorStateReadCapacity",
    "coordinatorStateWriteCapacity",
    "coordinatorStatePointInTimeRecoveryEnabled",
    "coordinatorStateDeletionProtectionEnabled",
    "coordinatorStateTags",
    "kinesisClient.region",
    "kinesisClient.endpointOverride",
    "kinesisClient.fipsEnabled",
    "dynamoDbClient.region",
    "dynamoDbClient.endpointOverride",
    "dynamoDbClient.fipsEnabled",
    "cloudWatchClient.region",
    "cloudWatchClient.endpointOverride",
    "cloudWatchClient.fipsEnabled",
]

#: Effective defaults of the Java daemon, in the unit of the key, except where None.
DEFAULTS = {
    "maxActiveThreads": 0, "initialPositionInStream": "LATEST", "retrievalMode": "DEFAULT",
    "maxRecords": 10000, "idleTimeBetweenReadsInMillis": 1500,
    "millisBehindLatestThresholdForReducedTps": 0, "fanoutConfig.maxDescribeStreamSummaryRetries": 10,
    "fanoutConfig.maxDescribeStreamConsumerRetries": 10, "fanoutConfig.retryBackoffMillis": 1000,
    "fanoutConfig.registerStreamConsumerRetries": 10, "failoverTimeMillis": 10000,
    "enablePriorityLeaseAssignment": True, "leaseTableDeletionProtectionEnabled": False,
    "leaseTablePitrEnabled": False, "shardSyncIntervalMillis": 60000,
    "cleanupLeasesUponShardCompletion": True, "ignoreUnexpectedChildShards": False,
    "maxLeasesForWorker": 2147483647, "maxLeasesToStealAtOneTime": 1,
    "initialLeaseTableReadCapacity": 10, "initialLeaseTableWriteCapacity": 10,
    "leaseTableScanTotalSegments": 0, "maxLeaseRenewalThreads": 20,
    "listShardsBackoffTimeInMillis": 1500, "maxListShardsRetryAttempts": 50,
    "parentShardPollIntervalMillis": 10000, "schedulerInitializationBackoffTimeMillis": 1000,
    "skipShardSyncAtWorkerInitializationIfLeasesExist": False,
    "clientVersionConfig": "CLIENT_VERSION_CONFIG_3X", "migrateAllEntitiesToLeaseTable": False,
    "tableMigrationCompleteBakeTimeSeconds": 86400, "taskBackoffTimeMillis": 500,
    "logWarningForTaskAfterMillis": None, "metricsBufferTimeMillis": 10000,
    "metricsMaxQueueSize": 10000, "metricsLevel": "DETAILED", "timeoutInSeconds": None,
    "gracefulLeaseHandoffTimeoutMillis": 30000, "isGracefulLeaseHandoffEnabled": True,
    "inMemoryWorkerMetricsCaptureFrequencyMillis": 1000, "workerMetricsReporterFreqInMillis": 30000,
    "noOfPersistedMetricsPerWorkerMetrics": 10, "disableWorkerMetrics": False,
    "maxThroughputPerHostKBps": 1.7976931348623157e308, "dampeningPercentage": 60,
    "reBalanceThresholdPercentage": 10, "allowThroughputOvershoot": True,
    "varianceBalancingFrequency": 3, "workerMetricsEMAAlpha": 0.5,
    "staleWorkerMetricsEntryCleanupDuration": "PT24H",
    "workerMetricsBillingMode": "PAY_PER_REQUEST", "coordinatorStateBillingMode": "PAY_PER_REQUEST",
    "workerMetricsReadCapacity": 0, "coordinatorStateWriteCapacity": 0,
    "coordinatorStateDeletionProtectionEnabled": False, "leaseAssignmentIntervalMillis": None,
}  # fmt: skip


@pytest.mark.parametrize("name", REFERENCE)
def test_every_name_of_the_reference_is_known(name):
    key, problem = resolve(name)
    assert key is not None
    assert problem is None
    assert key.doc


def test_the_table_holds_nothing_else_but_our_own_keys_and_flags_of_clients():
    extra = set(KEYS) - {resolve(name)[0].name for name in REFERENCE}
    dual = {
        f"{c}.dualstackEnabled" for c in ("kinesisClient", "dynamoDbClient", "cloudWatchClient")
    }
    # cloudWatchEndpoint is reached through cloudWatchClient.endpointOverride as well.
    own = {name for name in KEYS if KEYS[name].own} - {"cloudWatchEndpoint"}
    assert extra == own | dual
    assert own == {
        "multiStream",
        "streams",
        "streamNamePattern",
        "streamNameExcludePattern",
        "streamTags",
        "streamDiscoveryIntervalMillis",
        "streamDiscoveryGraceMillis",
        "maxStreams",
        "formerStreamsLeasesDeletionStrategy",
        "formerStreamsLeasesDeletionWaitMillis",
        "formerStreamsForLeaseCleanup",
        "streamCreationEpochUnit",
        "orphanedStreamInitialPositionInStream",
        "initializeMessageExtras",
        "streamArnAddressing",
        "aggregatedRecordsOutsideShard",
        "glueSchemaRegistry.enabled",
        "glueSchemaRegistry.mode",
        "AwsCredentialsProviderGlue",
        "glueEndpoint",
        "glueClient.region",
        "childFailurePolicy",
        "childExceptionPolicy",
        "onFailureDestination",
        "bisectBatchOnFailure",
        "maximumRecordAgeInSeconds",
        "deadLetterLimit",
        "deadLetterRecords",
        "deadLetterStderr",
        "childrenPerShard",
        "childConfirms",
        "childLogFormat",
        "childLogLevel",
        "recordTo",
        "recordPayloads",
        "idleBackoff",
        "catchupEnabled",
        "catchupMillisBehindLatestThreshold",
        "catchupScalingFactor",
        "kclpy",
        "childPrefork",
        "childPreload",
        "recoverGluedMessages",
        "childRestartBackoffMillis",
        "childRestartMaxAttempts",
        "leaseCleanupIntervalMillis",
        "completedLeaseCleanupIntervalMillis",
        "garbageLeaseCleanupIntervalMillis",
        "dynamoDbLockBasedLeaderLeaseDurationInMillis",
        "dynamoDbLockBasedLeaderHeartbeatPeriodInMillis",
        "leaseAssignmentStrategy",
        "workerGroup",
        "workerIdPrefix",
        "metricsShardLabels",
        "otlpMetrics",
        "readyMaxAgeMillis",
        "kcl1xWorkersStopped",
    }


@pytest.mark.parametrize(("name", "default"), DEFAULTS.items())
def test_defaults_are_those_of_java(name, default):
    assert KEYS[name].default == default
    assert type(KEYS[name].default) is type(default)


def test_only_refused_keys_have_the_refusing_kind():
    refused = {name for name, key in KEYS.items() if key.effect is Effect.REFUSED}
    assert refused == {name for name, key in KEYS.items() if key.kind is Kind.REFUSED}
    assert refused == {"shardPrioritization"}


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("workerIdentifier", "workerId"),
        ("pollingConfig.maxRecords", "maxRecords"),
        ("kinesisClient.endpointOverride", "kinesisEndpoint"),
        ("dynamoDbClient.endpointOverride", "dynamoDBEndpoint"),
        ("cloudWatchClient.endpointOverride", "cloudWatchEndpoint"),
        ("gracefulLeaseHandoffConfigBean.isGracefulLeaseHandoffEnabled", "isGracefulLeaseHandoffEnabled"),
        ("workerUtilizationAwareAssignmentConfigBean.dampeningPercentage", "dampeningPercentage"),
        ("workerMetricStatsTableConfigBean.workerMetricsTags", "workerMetricsTags"),
        ("coordinatorStateTableConfigBean.coordinatorStateTableName", "coordinatorStateTableName"),
        ("awscredentialsprovider", "AwsCredentialsProvider"),
        ("AWSCREDENTIALSPROVIDER", "AwsCredentialsProvider"),
        ("AWSCredentialsProviderDynamoDB", "AwsCredentialsProviderDynamoDB"),
        ("aWsCredentialsProviderCloudWatch", "AwsCredentialsProviderCloudWatch"),
    ],
)  # fmt: skip
def test_other_names_of_a_property_are_known(alias, name):
    key, problem = resolve(alias)
    assert key is KEYS[name]
    assert problem is None


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("FailoverTimeMillis", "did you mean failoverTimeMillis? Upper and lower case matter."),
        ("StreamName", "did you mean streamName?"),
        ("timestampAtInitialPositionInStream", "did you mean initialPositionInStreamExtended? It is in"),
        ("skipShardSyncAtStartupIfLeasesExist", "did you mean skipShardSyncAtWorkerInit"),
        ("shardPrioritizationStrategy", "not configurable"),
        ("cloudWatchClientConfig", "not configurable"),
        ("maxRecordsCount", "not configurable"),
        ("proxyDomain", "set the environment variables HTTPS_PROXY and NO_PROXY"),
        ("proxyHost", "set the environment variables HTTPS_PROXY and NO_PROXY"),
        ("http_proxy", "set the environment variables HTTPS_PROXY and NO_PROXY"),
        ("https.proxyPort", "set the environment variables HTTPS_PROXY and NO_PROXY"),
        ("nonProxyHosts", "set the environment variables HTTPS_PROXY and NO_PROXY"),
        ("RetrievalMode", "did you mean retrievalMode?"),
        ("dynamoDbEndpoint", "did you mean dynamoDBEndpoint?"),
        ("awscredentialsproviderdynamodb", "did you mean AwsCredentialsProviderDynamoDB?"),
        ("failoverTimeMilis", "did you mean failoverTimeMillis?"),
        ("applicationname", "did you mean applicationName?"),
        ("gracefulLeaseHandoffConfig.isGracefulLeaseHandoffEnabled", "did you mean isGracefulLease"),
        ("workerUtilizationAwareAssignmentConfig.dampeningPercentage", "did you mean dampeningPerc"),
        ("coordinatorStateTableConfig.coordinatorStateTableName", "did you mean coordinatorStateTable"),
        ("workerMetricsTableConfig.workerMetricsTags", "did you mean workerMetricsTags?"),
        ("ï»¿executableName", "without a byte-order mark"),
        ("initiatPositionInStreamExtended", "did you mean initialPositionInStreamExtended?"),
        ("region", "did you mean regionName?"),
        ("awsRegion", "did you mean regionName?"),
        ("aws.region", "did you mean regionName?"),
        ("fipsEnabled", "remove the line"),  # three clients have it
        ("stream", "did you mean streamName?"),
        ("billingMode", "with on-demand capacity"),
        ("leaseTableBillingMode", "change the table in DynamoDB"),
        ("kinesisCredentialsProvider", "the key is AwsCredentialsProvider"),
        ("dynamoDBCredentialsProvider", "the key is AwsCredentialsProviderDynamoDB"),
        ("cloudWatchCredentialsProvider", "the key is AwsCredentialsProviderCloudWatch"),
        ("leaseCleanupConfig.interval", "leaseCleanupIntervalMillis"),
        ("maxInitializationAttempts", "fixed at 20"),
        ("fooBar", "remove the line"),
        ("foo.bar", "remove the line"),
        ("foo[0]", "remove the line"),
        ("foo(a)", "remove the line"),
        ("maxRecords" * 11, "remove the line"),
        ("", "remove the line"),
    ],
)  # fmt: skip
def test_a_name_that_java_ignores_gets_a_warning_with_advice(name, advice):
    key, problem = resolve(name)
    assert key is None
    assert problem.severity is Severity.WARNING
    assert advice in problem.suggestion


def test_a_proxy_of_one_client_is_refused_with_the_way_that_there_is():
    _, problem = resolve("kinesisClient.proxyConfiguration")
    assert problem.severity is Severity.ERROR
    assert problem.suggestion.endswith("; set the environment variables HTTPS_PROXY and NO_PROXY")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("kinesisClient.nope", "Unknown property: nope"),
        ("foo[a]", "Invalid index value 'a'"),
        ("kinesisCredentialsProvider.class", "does not load a credentials class"),
        ("dynamoDBCredentialsProvider[0]", "does not load a credentials class"),
    ],
)
def test_a_name_that_stops_java_is_an_error(name, text):
    key, problem = resolve(name)
    assert key is None
    assert problem.severity is Severity.ERROR
    assert text in problem.text


def test_the_three_plain_keys_for_credentials_stop_no_worker():
    """LocalStack writes them beside AwsCredentialsProvider."""
    names = ("kinesisCredentialsProvider", "dynamoDBCredentialsProvider",
             "cloudWatchCredentialsProvider")  # fmt: skip
    result = built(*(f"{name} = DefaultCredentialsProvider" for name in names))
    assert result.require().application_name == "app"
    assert [(one.severity, one.key) for one in result.findings] == [
        (Severity.WARNING, name) for name in names
    ]


def test_an_unknown_key_of_a_client_is_told_where_keys_go():
    _, problem = resolve("kinesisClient.maxRecords")
    assert "region, endpointOverride, fipsEnabled and dualstackEnabled; all other keys" in (
        problem.suggestion
    )


def test_hosts_by_account_are_switched_off_by_the_environment():
    _, problem = resolve("dynamoDbClient.accountIdEndpointMode")
    assert problem.severity is Severity.WARNING
    assert problem.suggestion == "set the environment variable AWS_ACCOUNT_ID_ENDPOINT_MODE"


def test_an_sdk_setting_without_a_counterpart_is_a_warning():
    key, problem = resolve("kinesisClient.overrideConfiguration.apiCallTimeout")
    assert key is None
    assert problem.severity is Severity.WARNING


@pytest.mark.parametrize(
    "name",
    [
        "billingMode",
        "tags",
        "consistentReads",
        "leaseCleanupConfig",
        "namespace",
        "userAgent",
        "maxInitializationAttempts",
        "shardConsumerDispatchPollIntervalMillis",
        "maxPendingProcessRecordsInput",
        "kinesisRequestTimeout",
        "dynamoDbRequestTimeout",
        "readTimeoutsToIgnoreBeforeWarning",
        "metricsBackend",
        "streamInfoMode",
        "leasesRecoveryAuditorExecutionFrequencyMillis",
        "maxCacheByteSize",
        "dataFetchingStrategy",
        "kinesisClientConfig",
        "initiatPositionInStreamExtended",
    ],
)
def test_names_that_people_try_are_not_taken(name):
    key, problem = resolve(name)
    assert key is None
    assert problem.severity is Severity.WARNING
    assert problem.suggestion != "remove the line or correct the name"
