"""From a name in a file to the property it means, with Java's rules, and what to say if none.

Names are case-sensitive, dots lead into nested beans, and what the MultiLangDaemon doesn't know
it ignores without a word. Here every such name gets a warning and, where one exists, the name
that was probably meant.
"""

from __future__ import annotations

import difflib
import re

from mld.model.config.keys import KEYS, POLLING_KEYS, Key
from mld.model.findings import Problem, Severity

#: Two names, one field.
_ALIASES = {
    "workerIdentifier": "workerId",
    "kinesisClient.endpointOverride": "kinesisEndpoint",
    "dynamoDbClient.endpointOverride": "dynamoDBEndpoint",
    "cloudWatchClient.endpointOverride": "cloudWatchEndpoint",
} | {f"pollingConfig.{name}": name for name in POLLING_KEYS}
#: Beans of the daemon whose properties are also reachable through the bean's name.
_BEANS = (
    "gracefulLeaseHandoffConfigBean",
    "workerUtilizationAwareAssignmentConfigBean",
    "workerMetricStatsTableConfigBean",
    "coordinatorStateTableConfigBean",
)
_CLIENTS = ("kinesisClient", "dynamoDbClient", "cloudWatchClient")
#: Builder properties of the SDK clients that Java accepts and that mean nothing here.
_BUILDER_PROPERTIES = (
    "overrideConfiguration",
    "credentialsProvider",
    "httpClient",
    "httpClientBuilder",
    "asyncConfiguration",
    "defaultsMode",
    "endpointProvider",
    "authSchemeProvider",
    "accountIdEndpointMode",
    "endpointDiscoveryEnabled",
    "enableEndpointDiscovery",
)
_PROVIDER_BEANS = {
    "kinesisCredentialsProvider": "AwsCredentialsProvider",
    "dynamoDBCredentialsProvider": "AwsCredentialsProviderDynamoDB",
    "cloudWatchCredentialsProvider": "AwsCredentialsProviderCloudWatch",
}
#: No property names a proxy, in Java neither.
_PROXY = re.compile(
    r"(?i)(?:https?|no|non|socks)?[._-]?proxy"
    r"(?:hosts?|port|user(?:name)?|password|domain|workstation|config\w*)?"
)
_USE_VARIABLES = "set the environment variables HTTPS_PROXY and NO_PROXY"
#: Names that people try, and what to tell them.
_TRIED = {
    "billingMode": "a lease table is created on demand; change it in DynamoDB",
    "tags": "tag the lease table in DynamoDB",
    "consistentReads": "not configurable",
    "namespace": "the metrics namespace is applicationName",
    "userAgent": "use processingLanguage",
    "maxInitializationAttempts": "fixed at 20",
    "shardConsumerDispatchPollIntervalMillis": "fixed at 1000",
    "maxPendingProcessRecordsInput": "not configurable",
    "kinesisRequestTimeout": "not configurable",
    "dynamoDbRequestTimeout": "not configurable",
    "readTimeoutsToIgnoreBeforeWarning": "not configurable",
    "metricsBackend": "metrics go to CloudWatch, or nowhere with metricsLevel=NONE",
    "streamInfoMode": "not configurable",
    "leasesRecoveryAuditorExecutionFrequencyMillis": "not configurable",
    "leasesRecoveryAuditorInconsistencyConfidenceThreshold": "not configurable",
    "maxCacheByteSize": "not configurable",
    "dataFetchingStrategy": "not configurable",
    "kinesisClientConfig": "not configurable",
    "timestampAtInitialPositionInStream": "did you mean initialPositionInStreamExtended? It is in"
    " seconds since 1970",
    "skipShardSyncAtStartupIfLeasesExist": "did you mean"
    " skipShardSyncAtWorkerInitializationIfLeasesExist?",
    "maxRecordsCount": "not configurable",
    "recordsFetcherFactory": "not configurable",
    "shardPrioritizationStrategy": "not configurable",
    "shardSyncStrategyType": "not configurable",
    "commonClientConfig": "not configurable",
    "dynamoDBClientConfig": "not configurable",
    "cloudWatchClientConfig": "not configurable",
    "initiatPositionInStreamExtended": "did you mean initialPositionInStreamExtended?",
    "leaseCleanupConfig": "use leaseCleanupIntervalMillis, completedLeaseCleanupIntervalMillis or"
    " garbageLeaseCleanupIntervalMillis",
    "leaseManagementConfig": "write the property without a prefix",
    "maxLeaseRenewerThreads": "did you mean maxLeaseRenewalThreads?",
}
#: Beyond this a name is no slip of the pen, and comparing takes long.
_LONGEST_NAME = 100
_INDEX = re.compile(r"\[([^\]]*)\]")
_FOLDED = {name.lower(): name for name in (*KEYS, *_ALIASES)}
#: Last part of a name -> the key; what all clients have means none of them.
_FLAT = {
    name.rpartition(".")[2].lower(): name for name in KEYS if name.partition(".")[0] not in _CLIENTS
} | {"region": "regionName", "awsregion": "regionName", "stream": "streamName"}
_CREDENTIALS_PREFIX = "awscredentialsprovider"


def resolve(name: str) -> tuple[Key | None, Problem | None]:
    """The property that a name of a file means, and what is wrong with the name.

    Returns: (key, None) for a name that is known; (None, problem) for one that is not. The problem
        is an error only where Java refuses to start as well.
    """
    if name.lower().startswith(_CREDENTIALS_PREFIX):
        # Every occurrence is rewritten, the rest keeps its case.
        name = re.sub(_CREDENTIALS_PREFIX, "AwsCredentialsProvider", name, flags=re.IGNORECASE)
    bean, _, inner = name.partition(".")
    if bean in _BEANS and inner in KEYS:
        name = inner
    key = KEYS.get(_ALIASES.get(name, name))
    return (key, None) if key else (None, _complaint(name))


def _complaint(name: str) -> Problem:
    bean, dot, inner = name.partition(".")
    first, builder_property = (re.split(r"[.\[(]", part, maxsplit=1)[0] for part in (bean, inner))
    if first in _PROVIDER_BEANS:
        advice = f"use {_PROVIDER_BEANS[first]}"
        return _error(
            "providers by class name are not supported: Java builds them at random", advice
        )
    if bean in _CLIENTS and dot:
        if builder_property in _BUILDER_PROPERTIES:
            return _warning("an SDK setting of the Java daemon that has no counterpart here")
        advice = "remove the line; Java refuses to start as well"
        if _PROXY.fullmatch(inner):
            advice = f"{advice}; {_USE_VARIABLES}"
        return _error(f"Unknown property: {inner}", advice)
    index = _INDEX.search(name)
    if index and not re.fullmatch(r"[+-]?\d+", index[1]):
        return _error(f"Invalid index value '{index[1]}'", "remove the brackets")
    return _warning("not a property of the MultiLangDaemon: ignored, as in Java", _advice(name))


def _advice(name: str) -> str:
    first = re.split(r"[.\[(]", name, maxsplit=1)[0]
    if _PROXY.fullmatch(name.rpartition(".")[2]) or _PROXY.fullmatch(name):
        return _USE_VARIABLES
    for tried in (name, first):
        if tried in _TRIED:
            return _TRIED[tried]
    stripped = name.strip(" \t\"'\ufeffÿþï»¿")
    flat = stripped.rpartition(".")[2].lower()
    known = _FOLDED.get(stripped.lower()) or _FLAT.get(flat)
    if known is None and len(stripped) <= _LONGEST_NAME:
        close = difflib.get_close_matches(stripped, [*KEYS, *_ALIASES], n=1, cutoff=0.75)
        known = close[0] if close else None
    if known is None:
        return "remove the line or correct the name"
    if name.startswith("ï»¿"):
        return f"save the file without a byte-order mark: it became a part of the name {known}"
    letters = " Upper and lower case matter." if known.lower() == name.lower() else ""
    return f"did you mean {known}?{letters}"


def _error(text: str, suggestion: str) -> Problem:
    return Problem(Severity.ERROR, text, suggestion)


def _warning(text: str, suggestion: str = "") -> Problem:
    return Problem(Severity.WARNING, text, suggestion)
