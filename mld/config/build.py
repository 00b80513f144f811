"""From a ``.properties`` file to the effective configuration, with all findings.

All problems are reported at once. What the Java daemon silently ignores is a warning and has the
same effective value as there; what makes it hang or die late is an error. Nothing is read but the
file: the region of the environment and the credentials are found by the adapters.

Most fields are read as their declarations say. Each section has a function here, or in the module
of its own, for the rules between its properties.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kcl_mld.config.child_command import command_problems, split_command
from kcl_mld.config.children import check_children
from kcl_mld.config.config import (
    KEYS,
    POLLING_KEYS,
    AwsConfig,
    ChildConfig,
    Config,
    FanOutConfig,
    LeaseConfig,
    MetricsConfig,
    RetrievalConfig,
    RetrievalMode,
    SchemaConfig,
    ShardConfig,
    StreamConfig,
)
from kcl_mld.config.contain import contain_of
from kcl_mld.config.credentials import CredentialChain, parse_chain, supported_names
from kcl_mld.config.findings import Finding, Severity, nearest
from kcl_mld.config.fleet import (
    DURATION_KEY,
    DURATION_PERCENT,
    HEARTBEAT_KEY,
    HEARTBEATS,
    LEAST_DURATION_MS,
    AssignmentConfig,
    ClientVersionConfig,
    FleetConfig,
)
from kcl_mld.config.overrides import Overrides, conceal
from kcl_mld.config.plausible import PLACEHOLDERS, check_plausible
from kcl_mld.config.settings import Setting, Settings, read_settings
from kcl_mld.config.spark.settings import SparkSetting, spark_settings
from kcl_mld.config.stream import KINESIS
from kcl_mld.config.streams import stream_of, streams_of
from kcl_mld.config.unexpanded import check_unexpanded
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kcl_mld.config.stream import SourceTraits

_NO_CHAIN = CredentialChain(())
#: DynamoDB refuses other names at every call.
_TABLE_NAME = re.compile(r"[a-zA-Z0-9_.-]{3,255}\Z")
#: Dimensions of the daemon's metrics. Source: MetricsUtil and the scopes of KCL 3.5.1.
_DIMENSIONS = ("ALL", "Operation", "ShardId", "StreamId", "WorkerIdentifier")
#: The smallest pause between two reads of a shard. Source: PollingConfig.java:127.
_LEAST_IDLE_MS = 200
_MOST_RECORDS = 10_000
#: Of DynamoDB streams; the others mean nothing unless it is true.
_CATCH_UP = "catchupEnabled"
_CATCH_UP_KEYS = ("catchupMillisBehindLatestThreshold", "catchupScalingFactor")
#: Mean nothing unless ``glueSchemaRegistry.enabled``.
_GLUE_KEYS = (
    "glueSchemaRegistry.mode",
    "glueEndpoint",
    "glueClient.region",
    "AwsCredentialsProviderGlue",
)


@dataclass(frozen=True, slots=True)
class Built:
    """What became of one file.

    Attributes:
        config: None when there is an error among the findings.
        settings: every property with its effective value and origin, in the order of the table.
        findings: in file order, then what concerns the file as a whole.
        spark: ``spark.*`` properties; none unless the file has one.
        contents: of variables of the environment that values hold, and how each is shown.
    """

    config: Config | None
    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]
    spark: tuple[SparkSetting, ...] = ()
    contents: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)

    def setting(self, name: str) -> Setting:
        """One property."""
        return next(setting for setting in self.settings if setting.key.name == name)

    def with_findings(self, more: Iterable[Finding]) -> Built:
        """The same with more findings; without a configuration if one of them is an error."""
        findings = _in_order([*self.findings, *map(self._concealed, more)])
        return replace(
            self, config=None if _has_error(findings) else self.config, findings=findings
        )

    def shown(self, setting: Setting | SparkSetting) -> str:
        """The value of a property for people, without secrets and what the environment holds."""
        return conceal(setting.shown, self.contents)

    def _concealed(self, finding: Finding) -> Finding:
        text, suggestion = (conceal(t, self.contents) for t in (finding.text, finding.suggestion))
        return replace(finding, text=text, suggestion=suggestion)

    def as_errors(self, is_one: Callable[[Finding], bool]) -> Built:
        """The same with some of the warnings as errors."""
        judged = [replace(f, severity=Severity.ERROR) if is_one(f) else f for f in self.findings]
        return replace(self, findings=()).with_findings(judged)

    def require(self) -> Config:
        """The configuration.

        Raises:
            ConfigError: names every error, a line each; correct them and start again.
        """
        if self.config is None:
            errors = [str(f) for f in self.findings if f.severity is Severity.ERROR]
            raise ConfigError("\n".join(errors))
        return self.config


def build_config(
    data: bytes,
    source: str,
    *,
    worker_id: str,
    host_name: str = "",
    overrides: Overrides | None = None,
) -> Built:
    """Read a file.

    Args:
        data: its bytes.
        source: file as the user named it; appears in findings and origins.
        worker_id: fresh identifier for a worker whose file names none.
        host_name: of this machine.
        overrides: values that are set outside the file; None = there are none.

    Raises:
        ConfigError: the text breaks the grammar (a malformed unicode escape), or it names a
            variable that the environment lacks.
    """
    overrides = overrides or Overrides()
    entries = overrides.entries(data, source)
    settings = read_settings(entries, source)
    config = _assemble(settings, worker_id, host_name)
    check_plausible(settings, config)
    check_unexpanded(settings)
    in_order = tuple(settings[name] for name in KEYS)
    spark = spark_settings(settings.spark)
    built = Built(config, in_order, (), spark, overrides.contents(entries))
    return built.with_findings(settings.findings)


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: (f.line is None, f.line or 0)))


def _has_error(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _assemble(settings: Settings, worker_id: str, host_name: str) -> Config:
    child = _child(settings)
    application = _application(settings)
    streams = streams_of(settings)  # first: the region may be that of its items
    stream = stream_of(settings)
    traits = stream.traits if streams is None else streams.traits
    aws = _aws(settings, stream)
    check_children(settings, child, streams)
    return settings.read(
        Config,
        application_name=application,
        worker_id=_worker_id(settings, worker_id, host_name),
        stream=stream,
        streams=streams,
        aws=aws,
        leases=_leases(settings, application),
        child=child,
        contain=contain_of(settings, child),
        shards=_shards(settings),
        retrieval=_retrieval(settings, traits),
        metrics=settings.read(MetricsConfig, enabled_dimensions=_dimensions(settings)),
        schemas=_schemas(settings),
        fleet=_fleet(settings),
        assignment=_assignment(settings),
        spark={name: one.text or "" for name, one in settings.spark.items()},
    )


def _child(settings: Settings) -> ChildConfig:
    name = "executableName"
    command = settings.text(name)
    if command is None:
        settings.error(
            name,
            "Must provide an executable name in the properties file, e.g."
            " executableName = sampleapp.py",
        )
    else:
        for problem in command_problems(command):
            settings.report(name, problem)
    argv = split_command(command or "")
    return settings.read(ChildConfig, argv=argv, shown=settings[name].written or " ".join(argv))


def _application(settings: Settings) -> str:
    name = settings.text("applicationName") or ""
    if not name.strip():
        settings.error(
            "applicationName", "Application name is required", "write applicationName = …"
        )
    return name


def _worker_id(settings: Settings, fresh: str, host_name: str) -> str:
    worker_id = settings.text("workerId")
    prefix = _worker_id_prefix(settings, host_name)
    if worker_id is None:
        worker_id = f"{prefix}-{fresh}" if prefix else fresh
        settings.derive("workerId", worker_id, "generated")
        return worker_id
    if not worker_id.strip():
        settings.error("workerId", "must not be empty", "remove the line for a fresh UUID")
    return worker_id


def _worker_id_prefix(settings: Settings, host_name: str) -> str:
    """What stands before the UUID; "" = nothing."""
    name = "workerIdPrefix"
    text = settings.text(name)
    if text is None:
        return ""
    if settings.text("workerId") is not None:
        settings.warn(name, "has no effect beside workerId", "remove one of the two lines")
    prefix = text.replace("{hostname}", host_name)
    if not prefix.strip():
        what = "must not be empty" if not text.strip() else "this machine has no host name"
        settings.error(name, what, "write a prefix, or remove the line")
    elif PLACEHOLDERS & set(prefix):
        text = "only {hostname} is replaced; no other '{', '}' or '$' may be in it"
        settings.error(name, text, f"write {name} = {{hostname}}")
    return prefix


def _chain(settings: Settings, name: str) -> CredentialChain | None:
    text = settings.text(name)
    if text is None:
        return None
    chain, problems = parse_chain(text)
    for problem in problems:
        settings.report(name, problem)
    if not chain.steps:
        advice = "" if problems else "use one of " + ", ".join(supported_names())
        settings.error(name, "No credential providers were specified.", advice)
    return chain


def _aws(settings: Settings, stream: StreamConfig) -> AwsConfig:
    kinesis = _chain(settings, "AwsCredentialsProvider")
    if kinesis is None:
        settings.error(
            "AwsCredentialsProvider",
            "A basic set of AWS credentials must be provided",
            "write AwsCredentialsProvider = DefaultCredentialsProvider",
        )
    kinesis_region = settings.text("kinesisClient.region")
    if stream.arn_addressing and kinesis_region is None and stream.traits is KINESIS:
        kinesis_region = str(stream.arn).split(":")[3]
        settings.derive("kinesisClient.region", kinesis_region, "derived from streamArn")
    return settings.read(
        AwsConfig,
        kinesis_credentials=kinesis or _NO_CHAIN,
        dynamodb_credentials=_chain(settings, "AwsCredentialsProviderDynamoDB"),
        cloudwatch_credentials=_chain(settings, "AwsCredentialsProviderCloudWatch"),
        kinesis_region=kinesis_region,
        glue_credentials=_chain(settings, "AwsCredentialsProviderGlue"),
        use_fips=_client_flag(settings, "fipsEnabled"),
        use_dualstack=_client_flag(settings, "dualstackEnabled"),
    )


def _client_flag(settings: Settings, flag: str) -> bool | None:
    """One value for all clients: the flag of the Kinesis client, or of the one that sets it."""
    clients = ("kinesisClient", "dynamoDbClient", "cloudWatchClient")
    given = [s for client in clients if (s := settings[f"{client}.{flag}"]).is_set]
    if not given:
        return None
    for other in given[1:]:
        if other.value != given[0].value:
            settings.error(
                other.key.name,
                f"differs from {given[0].key.name}: kcl-mld has one setting for all clients",
                "write the same value for all",
            )
    if len(given) < len(clients):
        settings.warn(given[0].key.name, "holds for all clients in kcl-mld, not only for this one")
    return given[0].value is True


def _leases(settings: Settings, application: str) -> LeaseConfig:
    """Reports a table that DynamoDB would refuse to create."""
    table = settings.text("tableName")
    if not table:
        table = application
        settings.derive("tableName", table, "derived from applicationName")
    if application.strip() and not _TABLE_NAME.match(table):
        key = "applicationName" if table == application else "tableName"
        settings.error(
            key,
            f"{mask(table)!r} is not a valid table name: the Java daemon fails 20 times and"
            " exits 0",
            "3 to 255 letters, digits, _ . - and no blanks",
        )
    return settings.read(LeaseConfig, table_name=table)


def _shards(settings: Settings) -> ShardConfig:
    """If the file sets the attempts, they apply to a missing stream as well."""
    shards = settings.read(ShardConfig)
    if settings["schedulerInitializationBackoffTimeMillis"].is_set:
        return replace(shards, missing_stream_attempts=shards.initialization_attempts)
    return shards


def _retrieval(settings: Settings, traits: SourceTraits) -> RetrievalConfig:
    """Fetching records; settles what ``retrievalMode=DEFAULT`` means."""
    mode = _retrieval_mode(settings) if traits.may_fan_out else RetrievalMode.POLLING
    max_records = settings.number("maxRecords")
    idle_ms = settings.number("idleTimeBetweenReadsInMillis")
    if max_records > _MOST_RECORDS:
        problem = f"maxRecords must be less than or equal to {_MOST_RECORDS}, not {max_records}"
        if mode is RetrievalMode.POLLING:
            settings.error("maxRecords", problem, f"remove the line for {_MOST_RECORDS}")
        else:
            settings.warn("maxRecords", f"{problem}; ignored with fan-out", "remove the line")
        max_records = _MOST_RECORDS
    if idle_ms < _LEAST_IDLE_MS:
        settings.warn(
            "idleTimeBetweenReadsInMillis",
            f"{idle_ms} is raised to {_LEAST_IDLE_MS}, as in Java",
            f"write {_LEAST_IDLE_MS} or more",
        )
        name, raised = "idleTimeBetweenReadsInMillis", f"raised from {idle_ms}"
        idle_ms = _LEAST_IDLE_MS
        settings.derive(name, idle_ms, raised)
    return settings.read(
        RetrievalConfig,
        mode=mode,
        fan_out=settings.read(FanOutConfig),
        max_records=max_records,
        catch_up=_catch_up(settings, traits),
        reduced_tps_threshold_s=_reduced_tps(settings),
    )


def _catch_up(settings: Settings, traits: SourceTraits) -> bool:
    """Whether to read more often far behind; reports keys that have no effect."""
    is_wanted = settings.flag(_CATCH_UP)
    if traits is KINESIS:
        for name in (_CATCH_UP, *_CATCH_UP_KEYS):
            if settings[name].is_set:
                settings.warn(name, "has no effect with a Kinesis stream", "remove the line")
        return False
    for name in _CATCH_UP_KEYS:
        if settings[name].is_set and not is_wanted:
            advice = f"write {_CATCH_UP} = true, or remove the line"
            settings.warn(name, f"has no effect without {_CATCH_UP}", advice)
    return is_wanted


def _reduced_tps(settings: Settings) -> float:
    name = "millisBehindLatestThresholdForReducedTps"
    threshold_s = settings.seconds(name)
    if threshold_s < 0:
        settings.warn(name, "a negative value switches it off", "remove the line")
    return max(0.0, threshold_s)


def _retrieval_mode(settings: Settings) -> RetrievalMode:
    name = "retrievalMode"
    chosen = settings.value(name)
    if chosen != "DEFAULT":
        return RetrievalMode(str(chosen))
    polling = [key for key in POLLING_KEYS if settings[key].is_set]
    if not polling:
        settings.remark(
            name,
            "DEFAULT means enhanced fan-out because no polling property is set, as in Java: the"
            " stream gets a registered consumer, which AWS bills",
            "write retrievalMode = FANOUT, or POLLING to go without",
        )
        settings.derive(name, RetrievalMode.FANOUT, "derived: no polling property is set")
        return RetrievalMode.FANOUT
    settings.remark(
        name,
        f"DEFAULT means polling because {polling[0]} is set, as in Java",
        "write retrievalMode = POLLING or FANOUT",
        settings[name].line or settings[polling[0]].line,
    )
    settings.derive(name, RetrievalMode.POLLING, f"derived: {polling[0]} is set")
    return RetrievalMode.POLLING


def _dimensions(settings: Settings) -> tuple[str, ...] | None:
    """Enabled metrics dimensions; None = all. Unknown names are kept, as in Java, and reported."""
    name = "metricsEnabledDimensions"
    words = settings.value(name)
    if not isinstance(words, tuple):
        return None
    chosen = tuple(dict.fromkeys(str(word) for word in words))
    for word in chosen:
        if word not in _DIMENSIONS:
            close = nearest(word, _DIMENSIONS)
            advice = f"did you mean {close}?" if close else "known: " + ", ".join(_DIMENSIONS)
            settings.warn(name, f"no metric has a dimension {mask(word)}", advice)
    return None if "ALL" in chosen else chosen


def _schemas(settings: Settings) -> SchemaConfig:
    """Reports what means nothing while the registry is switched off."""
    schemas = settings.read(SchemaConfig)
    for name in _GLUE_KEYS:
        if settings[name].is_set and not schemas.enabled:
            advice = "write glueSchemaRegistry.enabled = true, or remove the line"
            settings.warn(name, "has no effect while the schema registry is not enabled", advice)
    return schemas


def _fleet(settings: Settings) -> FleetConfig:
    """The section; reports a lock that its own heartbeats can't keep, and a group without a name."""
    version = settings["clientVersionConfig"]
    _derive_lock(settings)
    group = settings.text("workerGroup")
    if group is not None and not group.strip():
        settings.error("workerGroup", "must not be empty", "name the group, or remove the line")
    client_version = (
        ClientVersionConfig(str(version.value)) if version.is_set else ClientVersionConfig.UNSAID
    )
    if client_version is ClientVersionConfig.UPGRADE:
        settings.remark(
            "clientVersionConfig",
            "Java workers older than 3.0 can't list the lease table from the first start on",
            f"while any of them runs, write {ClientVersionConfig.STAY_2X.value}",
        )
    return settings.read(FleetConfig, client_version=client_version)


def _assignment(settings: Settings) -> AssignmentConfig:
    """The section; reports shares of more than all."""
    name = "leaseAssignmentIntervalMillis"
    if settings.value(name) is None:
        interval_ms = 2 * settings.number("failoverTimeMillis")
        settings.derive(name, interval_ms, "derived from failoverTimeMillis")
    balance_s = settings.seconds(name) * settings.number("varianceBalancingFrequency")
    name = "dampeningPercentage"
    if (percentage := settings.number(name)) > 100:
        settings.warn(name, f"{percentage} % of a difference count as 100", f"write {name} = 100")
    name = "workerMetricsEMAAlpha"
    alpha = settings.value(name)
    if isinstance(alpha, int | float) and alpha > 1:
        settings.warn(name, f"{alpha} counts as 1: only the newest sample", f"write {name} = 1")
    return settings.read(AssignmentConfig, balance_s=balance_s)


def _derive_lock(settings: Settings) -> None:
    """Duration and heartbeat; each follows from the other where the file has only one."""
    if settings.value(DURATION_KEY) is None:
        if settings.value(HEARTBEAT_KEY) is None:
            share = settings.number("failoverTimeMillis") * DURATION_PERCENT // 100
            duration, origin = max(LEAST_DURATION_MS, share), "derived from failoverTimeMillis"
        else:
            duration = settings.number(HEARTBEAT_KEY) * HEARTBEATS
            origin = f"twice {HEARTBEAT_KEY}"
        settings.derive(DURATION_KEY, duration, origin)
    duration = settings.number(DURATION_KEY)
    if settings.value(HEARTBEAT_KEY) is None:
        heartbeat = duration // HEARTBEATS
        settings.derive(HEARTBEAT_KEY, heartbeat, f"half of {DURATION_KEY}")
    heartbeat = settings.number(HEARTBEAT_KEY)
    if heartbeat * HEARTBEATS > duration:
        settings.error(
            HEARTBEAT_KEY,
            f"{heartbeat} ms are more than half of {DURATION_KEY} ({duration} ms): the lock would"
            " expire when one heartbeat fails",
            f"set {HEARTBEAT_KEY} to {duration // 2} or less",
        )
