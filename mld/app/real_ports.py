"""The ports of the real world: clients, pools, the guardian of the children."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kcl_mld.app.ports import Ports, SchemaPorts
from kcl_mld.aws import clients
from kcl_mld.aws.clients import BotocoreCloudWatch, BotocoreGlue
from kcl_mld.aws.credentials import AwsSessions, require_credentials
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.aws.kinesis_port import open_kinesis
from kcl_mld.aws.regions import resolve_region
from kcl_mld.children.adapters.child_process import ProcessLauncher, resident_bytes
from kcl_mld.children.adapters.guardian import Guardian
from kcl_mld.children.adapters.kclpy_report import KclpyReport
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.adapters.allocator import return_free_memory
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.adapters.system import RandomIds, SystemClock
from kcl_mld.signals.adapters.output.background_output import dropped_messages
from kcl_mld.signals.ports import MetricSender

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from kcl_mld.children.ports import ChildLauncher, LetterStore
    from kcl_mld.config.config import Config
    from kcl_mld.config.credentials import CredentialChain
    from kcl_mld.config.properties import Entry
    from kcl_mld.kernel.ports import LoadSource
    from kcl_mld.ops.rules.doctor import MachineLimits


@dataclass(frozen=True, slots=True)
class RealWorld:
    """Real ports, and the identity that the start needs.

    Attributes:
        region: region of the Kinesis client.
        account: asks STS for the account; called only if the configuration names a stream by ARN.
    """

    ports: Ports
    region: str
    account: Callable[[], Awaitable[str]]
    kinesis_endpoint: str | None = None

    def effective(self, config: Config) -> Config:
        """The configuration with the values that the environment determines."""
        endpoint = self.kinesis_endpoint or config.aws.kinesis_endpoint
        found = replace(config.aws, kinesis_region=self.region, kinesis_endpoint=endpoint)
        return replace(config, aws=found)


_KEY = "AwsCredentialsProvider"


def _limits() -> MachineLimits:
    from kcl_mld.ops.adapters.machine_limits import machine_limits  # noqa: PLC0415 - few ask for it

    return machine_limits()


class _Opened:
    """Clients and pools of one worker, closed with a stack."""

    def __init__(self, config: Config, region: str, closing: ExitStack) -> None:
        self._config = config
        self._sessions = AwsSessions(region)
        self._closing = closing
        self.control = self.pool("control", clients.CONTROL_THREADS)
        self.leases = self.pool("leases", clients.lease_threads(config))

    def pool(self, name: str, threads: int, yields_to: CallPool | None = None) -> CallPool:
        made = CallPool(name, threads, yields_to)
        self._closing.callback(made.close)
        return made

    def client(
        self,
        settings: clients.ClientSettings,
        chain: CredentialChain | None = None,
        key: str = _KEY,
    ) -> Any:
        session = self._sessions.of(chain or self._config.aws.kinesis_credentials)
        require_credentials(session, key if chain else _KEY)
        return clients.make_client(session, settings)

    def dynamodb(self, settings: clients.ClientSettings) -> BotocoreDynamoDb:
        chain = self._config.aws.dynamodb_credentials
        return BotocoreDynamoDb(self.client(settings, chain, f"{_KEY}DynamoDB"), self.leases)

    def children(self) -> ChildLauncher:
        launcher, child = self._launcher(), self._config.child
        if child.record_to is None:
            return launcher
        from kcl_mld.children.adapters import recording  # noqa: PLC0415 - few ask for it

        return recording.RecordingLauncher(
            launcher, child.record_to, SystemClock(), with_payloads=child.record_payloads
        )

    def _launcher(self) -> ChildLauncher:
        guardian = Guardian()
        self._closing.callback(guardian.close)
        child = self._config.child
        ordinary = ProcessLauncher(guardian, child.kclpy)
        if not child.prefork:
            return KclpyReport(ordinary, ordinary)
        from kcl_mld.children.adapters.prefork import PreforkLauncher  # noqa: PLC0415 - few ask for it

        prefork = PreforkLauncher(guardian, child.preload, child.kclpy)
        self._closing.callback(prefork.close)
        return KclpyReport(prefork, ordinary)

    def letters(self, region: str) -> LetterStore | None:
        contain = self._config.contain
        if contain is None:
            return None
        from kcl_mld.children.adapters.letters import open_letters  # noqa: PLC0415 - few ask for it

        return open_letters(contain.destination, self.pool("letters", 2), self.client, region)

    def cloudwatch(self) -> BotocoreCloudWatch | None:
        config = self._config
        if config.metrics.level == "NONE":
            return None
        settings, chain = clients.cloudwatch_settings(config), config.aws.cloudwatch_credentials
        client = self.client(settings, chain, f"{_KEY}CloudWatch")
        return BotocoreCloudWatch(client, self.control)

    def metric_sender(self) -> MetricSender | None:
        """Where ``otlpMetrics`` sends metrics.

        Raises:
            ConfigError: the extra is not installed, or a variable of OTLP can't be read.
        """
        config = self._config
        if not config.metrics.otlp:
            return None
        try:
            from kcl_mld.observe.adapters.otlp import OtlpSender  # noqa: PLC0415 - few ask for it
        except ImportError as error:
            why = f"needs the OpenTelemetry SDK ({error}): pip install 'kcl-mld[otel]'"
            raise ConfigError(why, key="otlpMetrics") from error
        try:
            sender = OtlpSender(config, os.environ, self.pool("metrics", 1), SystemClock())
        except ValueError as error:
            raise ConfigError(f"a variable of OpenTelemetry: {error}", key="otlpMetrics") from error
        self._closing.callback(sender.close)
        return MetricSender(sender.send, sender.interval_s)

    def schemas(self) -> SchemaPorts | None:
        config = self._config
        if not config.schemas.enabled:
            return None
        # Loaded only if configured, so that other workers start faster.
        from kcl_mld.retrieval.adapters.schema_decoders import Decoders  # noqa: PLC0415
        from kcl_mld.retrieval.adapters.schema_folder import SchemaFolder  # noqa: PLC0415

        decoders = Decoders() if config.schemas.decode else None
        pool = self.pool("schemas", clients.GLUE_THREADS)
        settings, chain = clients.glue_settings(config), config.aws.glue_credentials
        client = self.client(settings, chain, f"{_KEY}Glue")
        files = SchemaFolder(pool)
        self._closing.callback(files.close)
        return SchemaPorts(glue=BotocoreGlue(client, pool), files=files, decoders=decoders)


@contextmanager
def real_ports(
    config: Config, read_entries: Callable[[], tuple[Entry, ...]] | None = None
) -> Iterator[RealWorld]:
    """Clients, pools, the guardian of the children; closed on exit.

    Args:
        read_entries: see :class:`Ports`.

    Raises:
        ConfigError: no region, or an endpoint that is no URL.
        CredentialsMissing: a client's chain has no credentials.
    """
    region = resolve_region(config.aws.kinesis_region or config.stream.region)
    with ExitStack() as closing:
        opened = _Opened(config, region, closing)
        retrieval = opened.pool("retrieval", clients.RETRIEVAL_THREADS, yields_to=opened.leases)
        source = open_kinesis(config, opened.client, opened.control, retrieval, subscribes=True)
        dynamodb = opened.dynamodb(clients.dynamodb_settings(config))
        cloudwatch, schemas = opened.cloudwatch(), opened.schemas()
        # Workers compare values in the lease table, so the time of DynamoDB counts.
        clock, children = SystemClock(dynamodb.clock.now_s), opened.children()

        async def account() -> str:
            sts = opened.client(clients.sts_settings(config))
            return str((await clients.caller_identity(sts, opened.control))["Account"])

        async def find_load() -> LoadSource | None:
            from kcl_mld.fleet.adapters.worker_load import find_load_source  # noqa: PLC0415 - 3.x only

            return await find_load_source(os.environ, clock, opened.control)

        ports = Ports(
            dynamodb=dynamodb,
            kinesis=source,
            cloudwatch=cloudwatch,
            children=children,
            clock=clock,
            ids=RandomIds(),
            rng=random.Random(),
            offload=opened.pool("convert", 1),
            pid=os.getpid(),
            schemas=schemas,
            letters=opened.letters(region),
            release_memory=return_free_memory,
            read_entries=read_entries,
            service_time=source.clock.now_s,
            dropped_messages=dropped_messages,
            find_load=find_load,
            resident_bytes=resident_bytes,
            limits=_limits,
            metric_sender=opened.metric_sender(),
            patient_dynamodb=lambda: opened.dynamodb(clients.patient_dynamodb_settings(config)),
        )
        yield RealWorld(ports, region, account, source.endpoint_url)
