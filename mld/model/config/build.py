"""From a ``.properties`` file to the effective configuration, with everything there is to say.

All problems are reported at once. What the Java daemon silently ignores is a warning and has the
same effective value as there; what makes it hang or die late is an error. Nothing is read but the
file: the region of the environment and the credentials are found by the adapters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mld.errors import ConfigError
from mld.model.children.child_command import command_problems, split_command
from mld.model.config.assignment import assignment_of
from mld.model.config.config import (
    AwsConfig,
    ChildConfig,
    ChildExceptionPolicy,
    ChildFailurePolicy,
    Config,
    StreamConfig,
)
from mld.model.config.fleet import fleet_of
from mld.model.config.keys import KEYS
from mld.model.config.plausible import check_plausible
from mld.model.config.properties import parse
from mld.model.config.sections import (
    leases_of,
    metrics_of,
    retrieval_of,
    schemas_of,
    shards_of,
)
from mld.model.config.settings import Setting, Settings, read_settings
from mld.model.config.streams import stream_of, streams_of
from mld.model.credentials import CredentialChain, parse_chain, supported_names
from mld.model.findings import Finding, Severity
from mld.model.spark.settings import SparkSetting, spark_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NO_CHAIN = CredentialChain(())


@dataclass(frozen=True, slots=True)
class Built:
    """What became of one file.

    Attributes:
        config: None when there is an error among the findings.
        settings: every property with its effective value and origin, in the order of the table.
        findings: in file order, then what concerns the file as a whole.
        spark: ``spark.*`` properties; none unless the file has one.
    """

    config: Config | None
    settings: tuple[Setting, ...]
    findings: tuple[Finding, ...]
    spark: tuple[SparkSetting, ...] = ()

    def setting(self, name: str) -> Setting:
        """One property."""
        return next(setting for setting in self.settings if setting.key.name == name)

    def with_findings(self, more: Iterable[Finding]) -> Built:
        """The same with more to say; without a configuration if an error is among it."""
        findings = _in_order([*self.findings, *more])
        return replace(
            self, config=None if _has_error(findings) else self.config, findings=findings
        )

    def as_errors(self, is_one: Callable[[Finding], bool]) -> Built:
        """The same with some of the warnings as errors.

        Args:
            is_one: whether a finding is.
        """
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


def build_config(data: bytes, source: str, *, worker_id: str) -> Built:
    """Read a file.

    Args:
        data: its bytes.
        source: file as the user named it; appears in findings and origins.
        worker_id: fresh identifier for a worker whose file names none.

    Raises:
        ConfigError: the text breaks the grammar (a malformed unicode escape).
    """
    settings = read_settings(parse(data, source), source)
    config = _assemble(settings, worker_id)
    check_plausible(settings, config)
    findings = _in_order(settings.findings)
    in_order = tuple(settings[name] for name in KEYS)
    spark = spark_settings(settings.spark)
    return Built(None if _has_error(findings) else config, in_order, findings, spark)


def _in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(sorted(findings, key=lambda f: (f.line is None, f.line or 0)))


def _has_error(findings: Iterable[Finding]) -> bool:
    return any(finding.severity is Severity.ERROR for finding in findings)


def _assemble(settings: Settings, worker_id: str) -> Config:
    child = _child(settings)
    application = _application(settings)
    stream = stream_of(settings)
    aws = _aws(settings, stream)
    return Config(
        application_name=application,
        worker_id=_worker_id(settings, worker_id),
        stream=stream,
        streams=streams_of(settings),
        aws=aws,
        leases=leases_of(settings, application),
        child=child,
        shards=shards_of(settings),
        retrieval=retrieval_of(settings),
        metrics=metrics_of(settings),
        schemas=schemas_of(settings),
        shutdown_grace_s=settings.seconds("shutdownGraceMillis"),
        fleet=fleet_of(settings),
        assignment=assignment_of(settings),
        processing_language=settings.text("processingLanguage") or None,
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
    timeout = settings.value("timeoutInSeconds")
    warn_after = settings.value("logWarningForTaskAfterMillis")
    return ChildConfig(
        argv=split_command(command or ""),
        answer_timeout_s=float(timeout) if isinstance(timeout, int) else None,
        warn_after_s=warn_after / 1000 if isinstance(warn_after, int) else None,
        failure_policy=ChildFailurePolicy(str(settings.value("childFailurePolicy"))),
        exception_policy=ChildExceptionPolicy(str(settings.value("childExceptionPolicy"))),
        recovers_glued=settings.flag("recoverGluedMessages"),
        restart_backoff_s=settings.seconds("childRestartBackoffMillis"),
        restart_attempts=settings.number("childRestartMaxAttempts"),
    )


def _application(settings: Settings) -> str:
    name = settings.text("applicationName") or ""
    if not name.strip():
        settings.error(
            "applicationName", "Application name is required", "write applicationName = …"
        )
    return name


def _worker_id(settings: Settings, fresh: str) -> str:
    worker_id = settings.text("workerId")
    if worker_id is None:
        settings.derive("workerId", fresh, "generated")
        return fresh
    if not worker_id.strip():
        settings.error("workerId", "must not be empty", "remove the line for a fresh UUID")
    return worker_id


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
    if stream.arn_addressing and kinesis_region is None:
        kinesis_region = str(stream.arn).split(":")[3]
        settings.derive("kinesisClient.region", kinesis_region, "derived from streamArn")
    return AwsConfig(
        kinesis_credentials=kinesis or _NO_CHAIN,
        dynamodb_credentials=_chain(settings, "AwsCredentialsProviderDynamoDB"),
        cloudwatch_credentials=_chain(settings, "AwsCredentialsProviderCloudWatch"),
        kinesis_endpoint=settings.text("kinesisEndpoint"),
        dynamodb_endpoint=settings.text("dynamoDBEndpoint"),
        cloudwatch_endpoint=settings.text("cloudWatchEndpoint"),
        kinesis_region=kinesis_region,
        dynamodb_region=settings.text("dynamoDbClient.region"),
        cloudwatch_region=settings.text("cloudWatchClient.region"),
        glue_credentials=_chain(settings, "AwsCredentialsProviderGlue"),
        glue_endpoint=settings.text("glueEndpoint"),
        glue_region=settings.text("glueClient.region"),
        use_fips=_client_flag(settings, "fipsEnabled"),
        use_dualstack=_client_flag(settings, "dualstackEnabled"),
    )


def _client_flag(settings: Settings, flag: str) -> bool | None:
    """One answer for all clients: the flag of the Kinesis client, or of whichever names it."""
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
