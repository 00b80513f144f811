"""Values that every daemon accepts and that hardly anybody means, or that AWS would refuse later.

Each is a slip that people make: milliseconds for seconds, an endpoint of another region, a role of
another account. Nothing is corrected; what surely fails is an error.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kcl_mld.config.config import RetrievalMode
from kcl_mld.config.credentials import CredentialSource
from kcl_mld.config.overrides import first_variable, how_to_expand
from kcl_mld.config.reserved_keys import key_taken_by_others
from kcl_mld.config.stream import KINESIS, StreamArn, partition_of
from kcl_mld.config.stream_selection import is_regular
from kcl_mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from kcl_mld.config.config import Config
    from kcl_mld.config.credentials import CredentialChain
    from kcl_mld.config.settings import Settings
    from kcl_mld.config.values import Value

#: Placeholders in a worker's id that were probably to be replaced.
PLACEHOLDERS = frozenset("{}$")
#: A key of DynamoDB, as worker metrics of 3.x have it, and a dimension of CloudWatch.
_MOST_KEY_BYTES = 2048
_MOST_DIMENSION = 1024
_MOST_NAMESPACE = 255
#: 1e11 s is the year 5138; 1e11 ms was in 1973.
_LARGEST_EPOCH_S = 10**11
_LONG_TIMEOUT_S = 10_000
_ROLE = re.compile(r"arn:aws[^:]*:iam::(\d{12}):role/\S+")
_SESSION = re.compile(r"[\w+=,.@-]{2,64}", re.ASCII)
#: Of streams and consumers alike.
_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}")
_AWS_HOST = re.compile(
    r"(?:.+\.)?(?P<service>kinesis|dynamodb|monitoring|sts|glue)(?:-fips)?\.(?P<region>[a-z]+(?:-[a-z]+)+-\d+)"
    r"\.(?:vpce\.)?(?:amazonaws\.com(?:\.cn)?|api\.aws)"
)
#: Endpoint -> service in its host name, and the client whose region it must have.
_ENDPOINTS = {
    "kinesisEndpoint": ("kinesis", "kinesisClient.region"),
    "dynamoDBEndpoint": ("dynamodb", "dynamoDbClient.region"),
    "cloudWatchEndpoint": ("monitoring", "cloudWatchClient.region"),
    "glueEndpoint": ("glue", "glueClient.region"),
}


def check_plausible(settings: Settings, config: Config) -> None:
    """Report values that were probably not intended.

    Args:
        config: assembled of them; incomplete where there were errors.
    """
    _check_worker_id(settings, config)
    _check_units(settings)
    _check_endpoints(settings, config)
    _check_roles(settings, config)
    _check_consumer(settings, config)
    _check_consumer_name(settings, config)
    _check_names_of_streams(settings, config)
    if config.stream.arn is not None and config.stream.traits is KINESIS:
        _check_arn(settings, StreamArn.parse(config.stream.arn), config)


def _check_worker_id(settings: Settings, config: Config) -> None:
    prefix = settings["workerIdPrefix"].text
    name = (
        "workerId" if settings["workerId"].text is not None or prefix is None else "workerIdPrefix"
    )
    if settings[name].text is not None:
        size = len(config.worker_id.encode("utf-8", "surrogatepass"))
        if size > _MOST_KEY_BYTES:
            settings.error(
                name,
                f"has {size} bytes; DynamoDB keeps names of workers up to {_MOST_KEY_BYTES} bytes",
                "remove the line for a fresh UUID",
            )
        elif name == "workerIdPrefix":
            _check_dimension(settings, config, name)
        elif config.worker_id.strip():
            _check_dimension(settings, config, name)
            _check_key(settings, config)
            _check_placeholders(settings, config)
            text = "every live worker needs one of its own: two with the same share their leases"
            advice = "remove the line where this file is used more than once"
            settings.remark(name, text, advice)
    if len(config.application_name) > _MOST_NAMESPACE and config.metrics.level != "NONE":
        text = f"is longer than {_MOST_NAMESPACE} characters: CloudWatch refuses it as a namespace"
        settings.warn("applicationName", text, "shorten it, or write metricsLevel = NONE")


def _check_key(settings: Settings, config: Config) -> None:
    """In the lease table of a 3.5 fleet the worker's id is a key among others."""
    why = key_taken_by_others(config.worker_id, (config.stream.name,))
    if why is not None:
        text = f"is {why}: a worker of a KCL 3.5 fleet can't have this id"
        settings.warn("workerId", text, "choose another, or remove the line for a fresh UUID")


def _check_placeholders(settings: Settings, config: Config) -> None:
    if PLACEHOLDERS & set(config.worker_id):
        variable = first_variable(config.worker_id)
        or_expand = "" if variable is None else f"; or {how_to_expand(variable[1])}"
        settings.warn(
            "workerId",
            "is taken as it stands, as in Java: nothing is put in the place of '{', '}' or '$', so"
            " all workers that use this file have the same id",
            f"write workerIdPrefix = {{hostname}} instead, which a fresh UUID follows{or_expand}",
        )


def _check_dimension(settings: Settings, config: Config, name: str) -> None:
    fits = config.worker_id.isascii() and len(config.worker_id) <= _MOST_DIMENSION
    if not fits and config.metrics.level != "NONE":
        settings.warn(
            name,
            f"CloudWatch refuses it as a dimension: at most {_MOST_DIMENSION} ASCII characters",
            "shorten it, or write metricsLevel = NONE",
        )


def _check_units(settings: Settings) -> None:
    for name in ("failoverTimeMillis", "shutdownGraceMillis"):
        value = settings.number(name)
        if settings[name].is_set and 0 < value < 1000:
            text = f"{value} milliseconds is very short"
            settings.warn(name, text, f"for {value} seconds write {name} = {value * 1000}")
    timeout = settings.value("timeoutInSeconds")
    if isinstance(timeout, int) and timeout >= _LONG_TIMEOUT_S:
        text = f"{timeout} seconds is {timeout / 3600:.1f} hours"
        settings.warn("timeoutInSeconds", text, "the value is in seconds")
    name = "initialPositionInStreamExtended"
    _check_epoch(settings, name, settings.value(name), settings[name].line)
    for option in settings.stream_options:
        if option.option == name:
            _check_epoch(settings, mask(option.key), int(option.text), option.line)


def _check_epoch(settings: Settings, name: str, start: Value, line: int | None) -> None:
    if isinstance(start, int) and start >= _LARGEST_EPOCH_S:
        text = f"{start} seconds since 1970 is in the far future, which Kinesis refuses"
        advice = f"the value is in seconds: write {start // 1000}"
        settings.error(name, text, advice, line)


def _check_consumer_name(settings: Settings, config: Config) -> None:
    """A name that RegisterStreamConsumer refuses, where one may be registered."""
    fan_out = config.retrieval.fan_out
    name = fan_out.consumer_name or config.application_name
    if not config.may_fan_out or fan_out.consumer_arn or _NAME.fullmatch(name):
        return
    key = "fanoutConfig.consumerName" if fan_out.consumer_name else "applicationName"
    if key == "applicationName" and not 128 < len(name) <= 255:
        return  # no table has such a name, which is reported elsewhere
    settings.error(
        key,
        f"{mask(name)!r} is not a name that Kinesis takes for a consumer of enhanced fan-out",
        "write fanoutConfig.consumerName with 1 to 128 letters, digits, _ . - and no blanks",
    )


def _check_names_of_streams(settings: Settings, config: Config) -> None:
    """Globs that no stream's name can match; a regular expression is not judged."""
    globs: list[tuple[str, str, int | None]] = [
        (name, glob.strip(), None)
        for name in ("streamNamePattern", "streamNameExcludePattern")
        if not is_regular(text := (settings.text(name) or "").strip())
        for glob in text.split(",")
    ]
    if config.traits is KINESIS:
        globs += [(mask(one.key), one.pattern, one.line) for one in settings.stream_options]
    for name, glob, line in globs:
        fixed = re.sub(r"\[[^\]]*\]|[*?]", "", glob)
        if fixed and not _NAME.fullmatch(fixed):
            text = f"no stream has a name like {mask(glob)!r}"
            advice = "names have 1 to 128 letters, digits, _ . - and no blanks"
            settings.warn(name, text, advice, line)


def _check_endpoints(settings: Settings, config: Config) -> None:
    for name, (service, client_region) in _ENDPOINTS.items():
        match = _AWS_HOST.fullmatch(urlsplit(settings.text(name) or "").hostname or "")
        if match is None:
            continue
        if name == "kinesisEndpoint" and config.traits is not KINESIS:
            continue  # judged with the ARN
        if match["service"] != service:
            text = f"is an endpoint of {match['service']}, not of {service}"
            settings.error(name, text, "correct the URL")
            continue
        key = client_region if settings.text(client_region) else "regionName"
        region = settings.text(key)
        if region is not None and region != match["region"]:
            settings.error(
                name,
                f"is in {match['region']}, but {key} is {region}: AWS refuses such signatures",
                f"write {key} = {match['region']}, or correct the URL",
            )


def _check_roles(settings: Settings, config: Config) -> None:
    chains = {
        "AwsCredentialsProvider": config.aws.kinesis_credentials,
        "AwsCredentialsProviderDynamoDB": config.aws.dynamodb_credentials,
        "AwsCredentialsProviderCloudWatch": config.aws.cloudwatch_credentials,
        "AwsCredentialsProviderGlue": config.aws.glue_credentials,
    }
    for name, chain in chains.items():
        for step in chain.steps if chain else ():
            if step.role is None:
                continue
            if not _ROLE.fullmatch(step.role.arn):
                text = f"{mask(step.role.arn)!r} is not the ARN of a role, which STS would refuse"
                settings.warn(name, text, "arn:aws:iam::<12 digits>:role/<name>, without blanks")
            if not _SESSION.fullmatch(step.role.session_name):
                text = f"{mask(step.role.session_name)!r} is not a session name that STS accepts"
                settings.warn(name, text, "2 to 64 letters, digits or _+=,.@- without blanks")


def _check_arn(settings: Settings, arn: StreamArn, config: Config) -> None:
    partition = partition_of(arn.region)
    if arn.partition != partition and not arn.partition.startswith("aws-iso"):
        text = f"{arn.region} is of the partition {partition}, not of {arn.partition}"
        settings.warn("streamArn", text, f"write arn:{partition}:kinesis:…")
    account = _account_of(config.aws.kinesis_credentials)
    if account not in {None, arn.account} and not config.stream.arn_addressing:
        settings.error(
            "streamArn",
            f"is of account {arn.account}, but AwsCredentialsProvider assumes a role of account"
            f" {account}: the Java daemon would read the stream {arn.name} of that account",
            "correct one of the two, or write streamArnAddressing = arn",
        )


def _check_consumer(settings: Settings, config: Config) -> None:
    """By a consumer of another stream its records come, and are checkpointed as of this one."""
    name = "fanoutConfig.consumerArn"
    consumer = settings.text(name)
    if not consumer or config.streams is not None:
        return
    arn, stream = config.stream.arn, config.stream.name
    region = config.aws.kinesis_region or config.stream.region or r"[^:]+"
    own = (
        re.escape(arn) if arn else rf"arn:aws[^:]*:kinesis:{region}:\d+:stream/{re.escape(stream)}"
    )
    if re.fullmatch(rf"{own}/consumer/.+", consumer) is None:
        report = settings.error
        if config.retrieval.mode is not RetrievalMode.FANOUT:
            report = settings.warn
        of = arn or f"the stream {stream}"
        form = f"it begins with {arn or f'arn:aws:kinesis:<region>:<account>:stream/{stream}'}"
        report(name, f"is not the ARN of a consumer of {of}", f"{form}/consumer/")


def _account_of(chain: CredentialChain) -> str | None:
    """The account of a chain that can only assume roles, if it is one."""
    if any(step.source is not CredentialSource.ASSUME_ROLE for step in chain.steps):
        return None
    roles = (_ROLE.fullmatch(step.role.arn) for step in chain.steps if step.role is not None)
    accounts = {match[1] for match in roles if match}
    return accounts.pop() if len(accounts) == 1 else None
