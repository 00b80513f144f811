"""From the entries of a file to one setting per property, each with its origin.

Names are case-sensitive, dots lead into nested beans, and what the MultiLangDaemon doesn't know it
ignores without a word: here it gets a warning and, where one exists, the name that was probably
meant. Nothing is decided beyond the single line: names are resolved, texts converted, doubles
reported, defaults filled in. What several settings mean together is ``kcl_mld.config.build``'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kcl_mld.config.config import CREDENTIAL_KEYS, KEYS, POLLING_KEYS
from kcl_mld.config.findings import Finding, Problem, Severity, did_you_mean, nearest
from kcl_mld.config.keys import Effect, Key, readers_of
from kcl_mld.config.properties import Entry, last_of_each
from kcl_mld.config.spark.settings import PREFIX, SparkSetting, problem_of
from kcl_mld.config.stream_options import OPTION_PREFIX, StreamOption, parse_option
from kcl_mld.config.values import Value, convert
from kcl_mld.kernel.model.masking import mask, mask_value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

P = ParamSpec("P")
S = TypeVar("S")

DEFAULT_ORIGIN = "default"
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
_BELOW_CLIENTS = (
    "below the name of a client there are region, endpointOverride, fipsEnabled and"
    " dualstackEnabled; all other keys are written without it"
)
#: Settings of the SDK for Java that botocore takes from the environment.
_INSTEAD = {
    "accountIdEndpointMode": "set the environment variable AWS_ACCOUNT_ID_ENDPOINT_MODE",
    "defaultsMode": "set the environment variable AWS_DEFAULTS_MODE",
}
_USE_VARIABLES = "set the environment variables HTTPS_PROXY and NO_PROXY"
_BILLING = (
    "the daemon creates the lease table with on-demand capacity; to pay for provisioned capacity,"
    " change the table in DynamoDB"
)
#: Names that people try, and the message for each.
_TRIED = {
    "billingMode": _BILLING,
    "leaseTableBillingMode": _BILLING,
    "leaseTableTags": "tag the lease table in DynamoDB",
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


@dataclass(frozen=True, slots=True)
class Setting:
    """One property with its effective value.

    Attributes:
        value: in the unit of the file; None = nothing.
        origin: ``file:line``, ``default``, or how it was derived.
        text: as written; None when absent.
        line: where it is written in the file, else None.
        source: what set it in place of the file; None = nothing did.
        written: the text before variables of the environment were put in; None = there are none.
        is_set: True when the Java daemon would take the value over from the file.
    """

    key: Key
    value: Value
    origin: str = DEFAULT_ORIGIN
    text: str | None = None
    line: int | None = None
    is_set: bool = False
    source: str | None = None
    written: str | None = None

    @property
    def shown(self) -> str:
        """The value for people, secrets masked; empty for nothing.

        One with variables is shown as it is written: what they hold may be a secret.
        """
        if self.written is not None and self.is_set:
            return mask_value(self.key.name, self.written)
        if self.value is None:
            return ""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, tuple):
            pairs = (item if isinstance(item, str) else "=".join(item) for item in self.value)
            return mask_value(self.key.name, ", ".join(pairs))
        return mask_value(self.key.name, str(self.value))


@dataclass(slots=True)
class Settings:
    """All properties of one file, and the findings about them.

    Attributes:
        by_name: canonical name -> setting; complete: absent ones hold their default.
        spark: name -> line that counts, of the ``spark.*`` properties.
        stream_options: the ``stream.<name>.*`` lines that count, in file order.
        findings: in file order.
    """

    source: str
    by_name: dict[str, Setting] = field(default_factory=dict)
    spark: dict[str, SparkSetting] = field(default_factory=dict)
    stream_options: list[StreamOption] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def __getitem__(self, name: str) -> Setting:
        return self.by_name[name]

    def value(self, name: str) -> Value:
        """Effective value of a property, in the unit of the file."""
        return self.by_name[name].value

    def text(self, name: str) -> str | None:
        """Effective value of a textual property."""
        value = self.by_name[name].value
        return None if value is None else str(value)

    def number(self, name: str) -> int:
        """Effective value of a number that has a default."""
        value = self.by_name[name].value
        assert isinstance(value, int), f"{name} has a whole number as its default"
        return value

    def seconds(self, name: str) -> float:
        """Effective value of a number of milliseconds that has a default."""
        return self.number(name) / 1000

    def flag(self, name: str) -> bool:
        """Effective value of a boolean."""
        return self.by_name[name].value is True

    def read(self, section: Callable[P, S], *_: P.args, **given: P.kwargs) -> S:
        """A section of the configuration, from the values of its keys.

        Args:
            section: a dataclass whose fields declare keys.
            given: fields that a rule has computed.
        """
        values: dict[str, Any] = {
            name: read(self.value(key.name))
            for name, key, read in readers_of(section)
            if name not in given
        }
        return section(**values, **given)  # type: ignore[call-arg]

    def error(self, name: str, text: str, suggestion: str = "", line: int | None = None) -> None:
        """Report that the daemon must not start."""
        self.report(name, Problem(Severity.ERROR, text, suggestion), line)

    def warn(self, name: str, text: str, suggestion: str = "", line: int | None = None) -> None:
        """Report a line that does not do what it seems to do."""
        self.report(name, Problem(Severity.WARNING, text, suggestion), line)

    def remark(self, name: str, text: str, suggestion: str = "", line: int | None = None) -> None:
        """Report something that is worth knowing."""
        self.report(name, Problem(Severity.INFO, text, suggestion), line)

    def report(self, name: str, problem: Problem, line: int | None = None) -> None:
        """Report a problem at the line of the setting, or at ``line``."""
        known = self.by_name.get(name)
        source = self.source
        if line is None and known is not None:
            line, source = known.line, known.source or source
        self._add(source, name, problem, line)

    def report_entry(self, entry: Entry, problem: Problem) -> None:
        """Report a problem of one entry, by the name that it has there."""
        self._add(entry.origin or self.source, mask(entry.key), problem, entry.line)

    def _add(self, source: str, name: str, problem: Problem, line: int | None) -> None:
        text, suggestion = mask(problem.text), mask(problem.suggestion)
        finding = Finding(problem.severity, source, line or None, name, text, suggestion)
        self.findings.append(finding)

    def derive(self, name: str, value: Value, origin: str) -> None:
        """Fill in a value that follows from others."""
        self.by_name[name] = Setting(KEYS[name], value, origin)


def read_settings(entries: Sequence[Entry], source: str) -> Settings:
    """Resolve and convert all entries, in file order; a later line wins over an earlier one.

    Args:
        entries: from ``kcl_mld.config.overrides``; what is set outside the file also replaces
            the file's lines that name the same property in another way.
    """
    settings = Settings(source)
    counting = last_of_each(tuple(entries))
    replaced = {_property_of(entry) for entry in entries if entry.origin is not None}
    for entry in entries:
        if entry.origin is None and _property_of(entry) in replaced:
            continue
        if counting[entry.key] is not entry:
            settings.warn(
                mask(entry.key),
                f"overridden by line {counting[entry.key].line}",
                "keep one of the lines",
                entry.line,
            )
            continue
        _report_eaten(settings, entry)
        if "\0" in entry.value:
            text = "holds the character NUL, which no name, path or argument may have"
            problem = Problem(Severity.ERROR, text, "correct the escape \\u0000")
            settings.report_entry(entry, problem)
            # Only to judge the rest of the value: the file is refused.
            entry = replace(entry, value=entry.value.replace("\0", ""))  # noqa: PLW2901
        if entry.key.startswith(PREFIX):
            _read_spark(settings, entry)
        elif entry.key.startswith(OPTION_PREFIX):
            _read_stream_option(settings, entry)
        else:
            _read_entry(settings, entry)
    for name, key in KEYS.items():
        settings.by_name.setdefault(name, Setting(key, key.default))
    return settings


def _property_of(entry: Entry) -> str:
    """The name of the property that an entry sets, or the key that is none."""
    key, _ = resolve(entry.key)
    return entry.key if key is None else key.name


def _read_entry(settings: Settings, entry: Entry) -> None:
    key, complaint = resolve(entry.key)
    if complaint is not None:
        settings.report_entry(entry, complaint)
    if key is None:
        return
    _report_mojibake(settings, entry)
    _report_comment(settings, entry)
    earlier = settings.by_name.get(key.name)
    if earlier is not None and entry.origin is None:
        _report_second_name(settings, earlier, entry)
    converted = convert(key, entry.value)
    for problem in converted.problems:
        settings.report_entry(entry, problem)
    place = entry.place(settings.source)
    is_set = converted.value is not None
    settings.by_name[key.name] = Setting(
        key,
        converted.value if is_set else key.default,
        place if is_set else f"{DEFAULT_ORIGIN} ({place} unset)",
        entry.value,
        entry.line or None,
        is_set=is_set,
        source=entry.origin,
        written=entry.written,
    )
    _report_effect(settings, key, entry)


def _read_spark(settings: Settings, entry: Entry) -> None:
    _report_mojibake(settings, entry)
    if (problem := problem_of(entry)) is not None:
        settings.report_entry(entry, problem)
    settings.spark[entry.key] = SparkSetting(
        entry.key, entry.value, entry.place(settings.source), entry
    )


def _read_stream_option(settings: Settings, entry: Entry) -> None:
    _report_mojibake(settings, entry)
    _report_comment(settings, entry)
    option, problem = parse_option(entry.key, entry.value, entry.line)
    if problem is not None:
        settings.report_entry(entry, problem)
    if option is not None and problem is None:
        settings.stream_options.append(option)


def _report_second_name(settings: Settings, earlier: Setting, entry: Entry) -> None:
    name = earlier.key.name
    if name in CREDENTIAL_KEYS:
        # BuilderDynaBean accepts a class once.
        text = f"given twice, first in line {earlier.line}; Java refuses to start as well"
        settings.error(entry.key, text, "keep one", entry.line)
    else:
        text = f"overridden by {entry.key} in line {entry.line}, which is the same property"
        settings.warn(name, text, "keep one", earlier.line)


def _report_mojibake(settings: Settings, entry: Entry) -> None:
    """UTF-8 in the file arrives as other characters, in Java too."""
    text = entry.value if entry.written is None else entry.written
    try:
        meant = text.encode("iso-8859-1").decode("utf-8")
    except UnicodeError:
        return
    if meant != text and entry.origin is None:
        escaped = meant.encode("ascii", "backslashreplace").decode()
        text = "the file is read as ISO-8859-1, as in Java, so these UTF-8 characters change"
        advice = f"write {mask_value(entry.key, escaped)}"
        settings.warn(entry.key, text, advice, entry.line)


def _report_eaten(settings: Settings, entry: Entry) -> None:
    """A backslash escapes what follows, in Java too: of a ``d`` behind one only the letter is left."""
    if entry.meant is not None:
        text = (
            "a backslash is an escape in properties files, so the value is"
            f" {mask_value(entry.key, entry.value)!r}"
        )
        advice = f"write {mask_value(entry.key, entry.meant)}"
        settings.warn(mask(entry.key), text, advice, entry.line)


def _report_comment(settings: Settings, entry: Entry) -> None:
    """Comments have lines of their own; this one is a part of the value."""
    written = entry.value if entry.written is None else entry.written
    if re.search(r"\s#", written) and entry.origin is None:
        text = "what follows # is part of the value, not a comment, as in Java"
        advice = "put the comment in a line of its own"
        settings.warn(entry.key, text, advice, entry.line)


def _report_effect(settings: Settings, key: Key, entry: Entry) -> None:
    if key.effect is Effect.UNNEEDED:
        settings.report_entry(entry, Problem(Severity.INFO, f"not needed: {key.doc}"))
    elif key.effect is Effect.NO_EFFECT:
        text = f"has no effect in the Java daemon either: {key.doc}"
        settings.report_entry(entry, Problem(Severity.WARNING, text, "remove the line"))
    elif key.own and entry.key == key.name:
        text = "a property of kcl-mld; the Java daemon ignores it"
        settings.report_entry(entry, Problem(Severity.INFO, text))


def resolve(name: str) -> tuple[Key | None, Problem | None]:
    """The property that a name in a file stands for, and the findings about the name.

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
    if name in _PROVIDER_BEANS:
        text = "the Java daemon ignores this line, and so does kcl-mld"
        return Problem(Severity.WARNING, text, f"the key is {_PROVIDER_BEANS[name]}")
    if first in _PROVIDER_BEANS:
        text = (
            "kcl-mld does not load a credentials class of Java; in Java the order in which such"
            " lines are applied, and so the outcome, may change from start to start"
        )
        return Problem(Severity.ERROR, text, f"name a provider in {_PROVIDER_BEANS[first]}")
    if bean in _CLIENTS and dot:
        if builder_property in _BUILDER_PROPERTIES:
            text = "an SDK setting of the Java daemon that has no counterpart here: it is ignored"
            return Problem(Severity.WARNING, text, _INSTEAD.get(builder_property, ""))
        advice = f"remove the line, which stops the Java daemon as well: {_BELOW_CLIENTS}"
        if _PROXY.fullmatch(inner):
            advice = f"{advice}; {_USE_VARIABLES}"
        return Problem(Severity.ERROR, f"Unknown property: {inner}", advice)
    index = _INDEX.search(name)
    if index and not re.fullmatch(r"[+-]?\d+", index[1]):
        return Problem(Severity.ERROR, f"Invalid index value '{index[1]}'", "remove the brackets")
    return Problem(
        Severity.WARNING,
        "not a property of the MultiLangDaemon: ignored, as in Java",
        _advice(name),
    )


@lru_cache(maxsize=1000)  # comparing with each known name takes a millisecond
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
        known = nearest(stripped, [*KEYS, *_ALIASES], 0.75)
    if known is None:
        return "remove the line or correct the name"
    if name.startswith("ï»¿"):
        return f"save the file without a byte-order mark: it became a part of the name {known}"
    return did_you_mean(known, name)
