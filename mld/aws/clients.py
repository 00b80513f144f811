"""botocore: how clients are built and called.

Retries are switched off here: when to repeat a call is decided by the services, on their clock.
boto3 is never imported: it costs 50 ms and 3 MiB at every start and adds nothing to a client.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from botocore import UNSIGNED, exceptions as boto
from botocore.config import Config as ClientConfig
from botocore.parsers import ResponseParserError

from kcl_mld import __version__, errors
from kcl_mld.aws.errors import (
    ca_file_of,
    client_error,
    not_sent,
    note_ca_file,
    service_error,
    was_not_sent,
)
from kcl_mld.aws.ports import SUBSCRIPTION_SILENCE_S
from kcl_mld.aws.prepared import PreparedOperation
from kcl_mld.aws.service_clock import service_clock_of
from kcl_mld.aws.whole_answers import (
    SILENCES,
    TABLE_STREAMS,
    AnswerLimit,
    BrokenAnswer,
    check_members,
    check_page,
    check_whole,
    limit_answers,
)
from kcl_mld.kernel.model.masking import printable

if TYPE_CHECKING:
    from botocore.client import BaseClient
    from botocore.session import Session

    from kcl_mld.config.config import Config
    from kcl_mld.kernel.adapters.calls import CallPool

#: Raised by botocore's parsers for a member of an unknown form.
_UNREADABLE = (
    ResponseParserError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of one client.

    Attributes:
        service: botocore's service name, e.g. ``kinesis``.
        region: None = botocore's chain (environment, profile).
        endpoint: URL, None = botocore's rules, which honor ``AWS_ENDPOINT_URL*``.
        threads: number that may call it at a time; as many connections are kept.
        connect_timeout_s: > 0.
        read_timeout_s: longest silence on the connection, > 0.
        use_fips: None = botocore's own setting; likewise ``use_dualstack``.
        signed: False sends anonymous requests.
        agent: added to the user agent, after our own name.
        answers_json: False for S3, whose good answers may have no body, or one of any kind.
    """

    service: str
    region: str | None
    endpoint: str | None
    threads: int
    connect_timeout_s: float
    read_timeout_s: float
    use_fips: bool | None = None
    use_dualstack: bool | None = None
    signed: bool = True
    agent: str = ""
    answers_json: bool = True


def make_client(session: Session, settings: ClientSettings) -> BaseClient:
    """A thread-safe client that tries every request once.

    Building one takes 20 to 80 ms and reads botocore's data files; it makes no request.

    Raises:
        ConfigError: no region is known, the endpoint is not a URL, or a setting of the environment
            or of the AWS configuration files has no value that botocore knows.
    """
    options: dict[str, Any] = {
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "connect_timeout": settings.connect_timeout_s,
        "read_timeout": settings.read_timeout_s,
        "max_pool_connections": settings.threads,
        "parameter_validation": False,
        "tcp_keepalive": True,
        "user_agent_extra": f"kcl-mld/{__version__} {settings.agent}".strip(),
    }
    if settings.use_fips is not None:
        options["use_fips_endpoint"] = settings.use_fips
    if settings.use_dualstack is not None:
        options["use_dualstack_endpoint"] = settings.use_dualstack
    if not settings.signed:
        options["signature_version"] = UNSIGNED
    try:
        client = session.create_client(
            settings.service,
            region_name=settings.region,
            endpoint_url=settings.endpoint,
            config=ClientConfig(**options),
        )
    except boto.NoRegionError:
        why = "no AWS region: set it in the file, in AWS_REGION or in the profile"
        raise errors.ConfigError(why, key="regionName") from None
    except (ValueError, boto.BotoCoreError) as error:
        raise errors.ConfigError(f"{settings.service} client: {error}") from error
    if settings.answers_json:
        client.meta.events.register("before-parse", check_whole)
    note_ca_file(client, session)
    service_clock_of(client, is_endpoint_named=settings.endpoint is not None)
    limit_answers(client)
    return client


class Caller:
    """Calls one client's operations in a pool and raises the errors of ``kcl_mld.errors``.

    Args:
        client: as from :func:`make_client`.
        frequent: operations that are called often, e.g. ``("get_records",)``; see
            :mod:`kcl_mld.aws.prepared`.
    """

    def __init__(self, client: BaseClient, pool: CallPool, frequent: tuple[str, ...] = ()) -> None:
        self._client = client
        self._pool = pool
        self._clock = service_clock_of(client)
        self._ca_file = ca_file_of(client)
        self._limit_s = SILENCES * client.meta.config.read_timeout
        self._prepared = {name: PreparedOperation(client, name) for name in frequent}
        is_of_tables = client.meta.service_model.service_name == "dynamodbstreams"
        self._family = TABLE_STREAMS if is_of_tables else ""

    async def read(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer of an operation that changes nothing, e.g. ``("get_item", {...})``."""
        return await self._run(operation, request, writes=False)

    async def write(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        """Answer of an operation that changes something: its 5xx is an unknown outcome."""
        return await self._run(operation, request, writes=True)

    async def _run(
        self, operation: str, request: dict[str, Any], *, writes: bool
    ) -> dict[str, Any]:
        limit = AnswerLimit(asyncio.get_running_loop(), self._limit_s)
        try:
            return await self._pool.run(self._call, limit, operation, request, writes=writes)
        except errors.ThreadRefused as error:
            raise not_sent(error, self._api_name(operation)) from error
        finally:
            limit.drop()

    def _api_name(self, operation: str) -> str:
        return str(self._client.meta.method_to_api_mapping[operation])

    def _call(
        self, limit: AnswerLimit, operation: str, request: dict[str, Any], *, writes: bool
    ) -> dict[str, Any]:
        try:
            perform = self._prepared.get(operation) or getattr(self._client, operation)
            self._clock.begin()
            with limit.running():
                answer: dict[str, Any] = perform(**request)
            check_page(request, answer)
            check_members(self._family + self._api_name(operation), request, answer)
        except boto.ClientError as error:
            raise service_error(error, writes=writes) from None
        except (boto.BotoCoreError, BrokenAnswer) as error:
            if limit.has_passed and not was_not_sent(error):
                why = f"the answer was not whole after {limit.limit_s:g} s"
                name = self._api_name(operation)
                raise errors.UnknownOutcome(name, "SlowAnswer", why) from error
            raise client_error(error, self._api_name(operation), self._ca_file) from error
        except _UNREADABLE as error:
            if not limit.was_read:  # a defect of ours, or of the request
                raise
            why = printable(f"{type(error).__name__}: {error}")
            raise errors.UnknownOutcome(
                self._api_name(operation), "UnreadableAnswer", why
            ) from error
        return answer


async def caller_identity(client: BaseClient, pool: CallPool) -> dict[str, Any]:
    """Who the credentials behind an STS client are: ``Account`` (twelve digits), ``Arn``.

    Raises:
        AwsError: see :class:`Caller`; ``GetCallerIdentity`` needs no permission.
    """
    return await Caller(client, pool).read("get_caller_identity", {})


#: Threads of each pool, which grows by need up to this.
CONTROL_THREADS = 4
RETRIEVAL_THREADS = 64
GLUE_THREADS = 4
#: Connections of subscriptions that ended as they should, kept for the next ones. urllib3 warns of
#: each that it closes beyond that.
SUBSCRIPTIONS_KEPT = 512


#: Threads for other calls on the table than renewals: scans, takes, checkpoints.
_OTHER_LEASE_CALLS = 4


def lease_threads(config: Config) -> int:
    """Threads of the pool ``leases``: one for each renewal in flight, and some for other calls."""
    return config.leases.renewal_threads + _OTHER_LEASE_CALLS


def kinesis_settings(config: Config) -> ClientSettings:
    """Settings of the Kinesis client, which the pools ``control`` and ``retrieval`` share."""
    return ClientSettings(
        service=config.traits.service,
        region=config.aws.kinesis_region or config.stream.region,
        endpoint=config.aws.kinesis_endpoint,
        threads=CONTROL_THREADS + RETRIEVAL_THREADS,
        connect_timeout_s=min(5.0, config.retrieval.request_timeout_s),
        read_timeout_s=config.retrieval.request_timeout_s,
        use_fips=config.aws.use_fips,
        use_dualstack=config.aws.use_dualstack,
        agent=_agent(config),
    )


def subscription_settings(config: Config) -> ClientSettings:
    """Settings of the Kinesis client that subscribes: silence on a connection may last longer."""
    kept = SUBSCRIPTIONS_KEPT
    return replace(kinesis_settings(config), threads=kept, read_timeout_s=SUBSCRIPTION_SILENCE_S)


def dynamodb_settings(config: Config) -> ClientSettings:
    """Settings of the DynamoDB client: connecting plus reading stay below the lease time-out."""
    return ClientSettings(
        service="dynamodb",
        region=config.aws.dynamodb_region or config.stream.region,
        endpoint=config.aws.dynamodb_endpoint,
        threads=lease_threads(config),
        connect_timeout_s=config.leases.connect_timeout_s,
        read_timeout_s=config.leases.read_timeout_s,
        use_fips=config.aws.use_fips,
        use_dualstack=config.aws.use_dualstack,
        agent=_agent(config),
    )


def patient_dynamodb_settings(config: Config) -> ClientSettings:
    """The same with the time limits of commands and of a start, for which no lease waits."""
    return replace(dynamodb_settings(config), connect_timeout_s=5.0, read_timeout_s=10.0)


def cloudwatch_settings(config: Config) -> ClientSettings:
    """Settings of the CloudWatch client."""
    return _control_settings(
        config, "cloudwatch", config.aws.cloudwatch_region, config.aws.cloudwatch_endpoint
    )


def glue_settings(config: Config) -> ClientSettings:
    """Settings of the Glue client: connecting plus reading end before a record is let go."""
    settings = _control_settings(config, "glue", config.aws.glue_region, config.aws.glue_endpoint)
    return replace(settings, threads=GLUE_THREADS, connect_timeout_s=2.0, read_timeout_s=3.0)


def sts_settings(config: Config) -> ClientSettings:
    """Settings of the STS client of :func:`caller_identity`."""
    return _control_settings(config, "sts", config.aws.kinesis_region, None)


def _control_settings(
    config: Config, service: str, region: str | None, endpoint: str | None
) -> ClientSettings:
    return ClientSettings(
        service=service,
        region=region or config.stream.region,
        endpoint=endpoint,
        threads=CONTROL_THREADS,
        connect_timeout_s=5.0,
        read_timeout_s=10.0,
        use_fips=config.aws.use_fips,
        use_dualstack=config.aws.use_dualstack,
        agent=_agent(config),
    )


def _agent(config: Config) -> str:
    language = config.processing_language or ""
    return "".join(c for c in language if c.isascii() and (c.isalnum() or c in "-._/"))[:64]


class BotocoreCloudWatch:
    """Publishing metrics; raises the errors of ``kcl_mld.errors`` only.

    Args:
        client: a CloudWatch client, see :func:`kcl_mld.aws.clients.make_client`.
        pool: any but the one of the leases: CloudWatch may hang.
    """

    def __init__(self, client: BaseClient, pool: CallPool) -> None:
        self._calls = Caller(client, pool)

    async def put_metric_data(self, **request: Any) -> dict[str, Any]:
        """PutMetricData; a repetition after an unknown outcome may count the same metrics again."""
        return await self._calls.write("put_metric_data", request)


class BotocoreGlue:
    """Reading schemas; raises the errors of ``kcl_mld.errors`` only.

    Args:
        client: a Glue client, see :func:`kcl_mld.aws.clients.make_client`.
        pool: of its own: Glue may hang.
    """

    def __init__(self, client: BaseClient, pool: CallPool) -> None:
        self._calls = Caller(client, pool)

    async def get_schema_version(self, **request: Any) -> dict[str, Any]:
        """GetSchemaVersion: definition, format and ARN of one version."""
        return await self._calls.read("get_schema_version", request)
