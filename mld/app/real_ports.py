"""The ports of the real world: clients, pools, the guardian of the children."""

from __future__ import annotations

import os
import random
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from mld.adapters.allocator import return_free_memory
from mld.adapters.aws import clients
from mld.adapters.aws.clients import BotocoreCloudWatch
from mld.adapters.aws.credentials import AwsSessions, require_credentials
from mld.adapters.aws.dynamodb import BotocoreDynamoDb
from mld.adapters.aws.kinesis import BotocoreKinesis
from mld.adapters.aws.regions import resolve_region
from mld.adapters.calls import CallPool
from mld.adapters.children.child_process import ProcessLauncher
from mld.adapters.children.guardian import Guardian
from mld.adapters.output.background_output import dropped_messages
from mld.adapters.system_clock import RandomIds, SystemClock
from mld.app.ports import Ports, SchemaPorts

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from mld.model.config.config import Config
    from mld.model.credentials import CredentialChain
    from mld.ports.worker_load import LoadSource


@dataclass(frozen=True, slots=True)
class RealWorld:
    """Real ports, and what start-up asks about us.

    Attributes:
        region: region of the Kinesis client.
        account: asks STS who we are; called only where the file names a stream by ARN.
        kinesis_endpoint: URL that the Kinesis client uses.
    """

    ports: Ports
    region: str
    account: Callable[[], Awaitable[str]]
    kinesis_endpoint: str | None = None

    def effective(self, config: Config) -> Config:
        """The configuration with what the environment decided."""
        endpoint = self.kinesis_endpoint or config.aws.kinesis_endpoint
        found = replace(config.aws, kinesis_region=self.region, kinesis_endpoint=endpoint)
        return replace(config, aws=found)


@contextmanager
def real_ports(
    config: Config, read_properties: Callable[[], bytes] | None = None
) -> Iterator[RealWorld]:
    """Clients, pools, the guardian of the children; closed on exit.

    Args:
        config: of this worker.
        read_properties: see :class:`Ports`.

    Raises:
        ConfigError: no region, or an endpoint that is no URL.
        CredentialsMissing: a client's chain has no credentials.
    """
    region = resolve_region(config.aws.kinesis_region or config.stream.region)
    sessions = AwsSessions(region)
    with ExitStack() as closing:

        def pool(name: str, threads: int) -> CallPool:
            made = CallPool(name, threads)
            closing.callback(made.close)
            return made

        def client(
            chain: CredentialChain | None, key: str, settings: clients.ClientSettings
        ) -> Any:
            session = sessions.of(chain or config.aws.kinesis_credentials)
            require_credentials(session, key if chain else "AwsCredentialsProvider")
            return clients.make_client(session, settings)

        control = pool("control", clients.CONTROL_THREADS)
        retrieval = pool("retrieval", clients.RETRIEVAL_THREADS)
        kinesis = client(None, "AwsCredentialsProvider", clients.kinesis_settings(config))
        subscribing = None
        if config.may_fan_out:
            subscribing = client(
                None, "AwsCredentialsProvider", clients.subscription_settings(config)
            )
        leases = pool("leases", clients.LEASE_THREADS)

        def dynamodb(settings: clients.ClientSettings) -> BotocoreDynamoDb:
            chain, key = config.aws.dynamodb_credentials, "AwsCredentialsProviderDynamoDB"
            return BotocoreDynamoDb(client(chain, key, settings), leases)

        renewing = dynamodb(clients.dynamodb_settings(config))
        cloudwatch = None
        if config.metrics.level != "NONE":
            cloudwatch = BotocoreCloudWatch(
                client(
                    config.aws.cloudwatch_credentials,
                    "AwsCredentialsProviderCloudWatch",
                    clients.cloudwatch_settings(config),
                ),
                control,
            )

        schemas = None
        if config.schemas.enabled:
            # Only where the file asks for them, so that others start faster.
            from mld.adapters.aws.clients import BotocoreGlue  # noqa: PLC0415
            from mld.adapters.schemas.decoders import Decoders  # noqa: PLC0415
            from mld.adapters.schemas.definition_files import SchemaFolder  # noqa: PLC0415

            decoders = Decoders() if config.schemas.decode else None
            glue_pool = pool("schemas", clients.GLUE_THREADS)
            glue = client(
                config.aws.glue_credentials,
                "AwsCredentialsProviderGlue",
                clients.glue_settings(config),
            )
            files = SchemaFolder(glue_pool)
            closing.callback(files.close)
            schemas = SchemaPorts(
                glue=BotocoreGlue(glue, glue_pool), files=files, decoders=decoders
            )

        async def account() -> str:
            sts = client(None, "AwsCredentialsProvider", clients.sts_settings(config))
            return await clients.caller_account(sts, control)

        clock = SystemClock()

        async def find_load() -> LoadSource | None:
            from mld.adapters.worker_load import find_load_source  # noqa: PLC0415 - 3.x only

            return await find_load_source(os.environ, clock, control)

        kinesis_port = BotocoreKinesis(kinesis, control, retrieval, subscribing)
        guardian = Guardian()
        closing.callback(guardian.close)
        ports = Ports(
            dynamodb=renewing,
            kinesis=kinesis_port,
            cloudwatch=cloudwatch,
            children=ProcessLauncher(guardian),
            clock=clock,
            ids=RandomIds(),
            rng=random.Random(),
            offload=pool("convert", 1),
            pid=os.getpid(),
            schemas=schemas,
            release_memory=return_free_memory,
            read_properties=read_properties,
            service_time=kinesis_port.dates.now_s,
            dropped_messages=dropped_messages,
            find_load=find_load,
            patient_dynamodb=lambda: dynamodb(clients.patient_dynamodb_settings(config)),
        )
        yield RealWorld(ports, region, account, str(kinesis.meta.endpoint_url))
