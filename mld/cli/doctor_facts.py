"""Collects what ``kcl-mld doctor`` judges: by calls that read, and by a child without records."""

from __future__ import annotations

import asyncio
import os
import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcl_mld.aws import clients
from kcl_mld.aws.credentials import AwsSessions, new_session, require_credentials
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.aws.kinesis_port import open_kinesis
from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.guardian import Guardian
from kcl_mld.children.model.child_name import ChildName
from kcl_mld.children.record_processor import RecordProcessor
from kcl_mld.children.rules.child_environment import ChildFacts, announced_to
from kcl_mld.cli.fleet_access import find_streams
from kcl_mld.config.config import RetrievalMode
from kcl_mld.config.stream import stream_action
from kcl_mld.config.stream_list import ListedStream
from kcl_mld.errors import CredentialsMissing, MissingStreams, MldError, NotFound
from kcl_mld.fleet.model.state_history import ClientVersion
from kcl_mld.fleet.model.table_layout import Layout
from kcl_mld.kernel.adapters.system import RandomIds, SystemClock
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from kcl_mld.leases.model.lease_item import LEASE_KEY
from kcl_mld.leases.model.owner_index import index_status, my_leases_query
from kcl_mld.observe.fleet_reader import fleet_items
from kcl_mld.ops.rules.doctor import (
    Attempt,
    AwsFacts,
    ChildTrial,
    EndpointFact,
    Identity,
    StreamFacts,
    TableFacts,
)
from kcl_mld.streams.rules.stream_identity import arn_of, described_stream
from kcl_mld.streams.stream_names import StaticNames

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping

    from kcl_mld.aws.kinesis_port import KinesisPort
    from kcl_mld.config.config import Config
    from kcl_mld.config.credentials import CredentialChain
    from kcl_mld.config.stream import Stream
    from kcl_mld.kernel.adapters.calls import CallPool

_KEY = "AwsCredentialsProvider"
#: Streams that are asked for at the same time.
_AT_ONCE = 4
#: Seconds that a tried child has for each answer, unless the file allows it less.
_CHILD_S = 60.0
_SHARD = "shardId-000000000000"
_ASSIGNED = {ClientVersion.CLIENT_VERSION_3X, ClientVersion.CLIENT_VERSION_3X_WITH_ROLLBACK}


class AwsExamination:
    """Asks AWS about one configuration."""

    def __init__(self, config: Config, region: str, pool: CallPool) -> None:
        """Ask nothing yet.

        Args:
            region: of clients whose region the file does not set.
        """
        self._config = config
        self._region = region
        self._sessions = AwsSessions(region)
        self._pool = pool
        self._clock, self._rng = SystemClock(), random.Random()
        self._attempts: list[Attempt] = []

    def _chains(self) -> Iterator[tuple[str, CredentialChain]]:
        """Properties whose credentials a worker uses."""
        aws = self._config.aws
        yield _KEY, aws.kinesis_credentials
        if aws.dynamodb_credentials is not None:
            yield f"{_KEY}DynamoDB", aws.dynamodb_credentials
        if aws.cloudwatch_credentials is not None and self._config.metrics.level != "NONE":
            yield f"{_KEY}CloudWatch", aws.cloudwatch_credentials
        if aws.glue_credentials is not None and self._config.schemas.enabled:
            yield f"{_KEY}Glue", aws.glue_credentials

    async def identities(self) -> tuple[Identity, ...]:
        """Whose credentials there are."""
        return tuple([await self._identity(key, chain) for key, chain in self._chains()])

    async def _identity(self, key: str, chain: CredentialChain) -> Identity:
        session = self._sessions.of(chain)
        try:
            require_credentials(session, key)
        except CredentialsMissing as error:
            return Identity(key=key, why=str(error))
        credentials = session.get_credentials()
        provider = "none (anonymous)" if credentials is None else str(credentials.method)
        try:
            sts = clients.make_client(session, clients.sts_settings(self._config))
            answer = await clients.caller_identity(sts, self._pool)
        except MldError as error:
            return Identity(key=key, provider=provider, why=str(error))
        return Identity(key=key, provider=provider, arn=str(answer.get("Arn")))

    def _client(self, chain: CredentialChain | None, settings: clients.ClientSettings) -> Any:
        session = self._sessions.of(chain or self._config.aws.kinesis_credentials)
        return clients.make_client(session, settings)

    def endpoints(self) -> tuple[EndpointFact, ...]:
        """Where the clients send their requests."""
        config, aws = self._config, self._config.aws
        named = [
            (clients.kinesis_settings(config), None, "kinesisEndpoint"),
            (clients.dynamodb_settings(config), aws.dynamodb_credentials, "dynamoDBEndpoint"),
        ]
        if config.metrics.level != "NONE":
            settings = clients.cloudwatch_settings(config)
            named.append((settings, aws.cloudwatch_credentials, "cloudWatchEndpoint"))
        if config.schemas.enabled:
            named.append((clients.glue_settings(config), aws.glue_credentials, "glueEndpoint"))
        found = []
        for settings, chain, key in named:
            url = str(self._client(chain, settings).meta.endpoint_url)
            origin = f"property {key}" if settings.endpoint else endpoint_origin(settings.service)
            found.append(EndpointFact(settings.service, url, origin, settings.endpoint is not None))
        return tuple(found)

    async def ask(self) -> AwsFacts:
        """Find out which streams and tables exist, and which may be read."""
        config = self._config
        kinesis = open_kinesis(config, partial(self._client, None), self._pool, self._pool)
        settings = clients.patient_dynamodb_settings(config)
        dynamodb = BotocoreDynamoDb(
            self._client(config.aws.dynamodb_credentials, settings), self._pool
        )
        streams = await self._streams(kinesis)
        service_s = kinesis.clock.now_s()
        ahead_s = None if service_s is None else time.time() - service_s
        table = await self._table(dynamodb)
        return AwsFacts(
            ahead_s=ahead_s, streams=streams, table=table, attempts=tuple(self._attempts)
        )

    async def _try(
        self, action: str, on: str, call: Callable[..., Awaitable[Any]], **request: Any
    ) -> tuple[Any, MldError | None]:
        """The answer of a call that reads, or why there is none."""
        answer, error = None, None
        try:
            answer = await call(**request)
        except MldError as failed:
            error = failed
        self._attempts.append(Attempt(action, on, error))
        return answer, error

    def _action(self, operation: str) -> str:
        return stream_action(operation, self._config.traits)

    # -- streams ---------------------------------------------------------------------------------

    async def _streams(self, kinesis: KinesisPort) -> tuple[StreamFacts, ...]:
        single, names = find_streams(self._config, self._region, kinesis, self._clock, self._rng)
        streams: list[Stream] = [] if single is None else [single]
        if names is not None:
            action = self._action("ListStreams")
            listed, error = await self._try(action, "all streams", names.names)
            if isinstance(error, MissingStreams):
                return tuple(StreamFacts(name=one, error=error) for one in error.names)
            streams = [described_stream(one, self._region) for one in listed or ()]
            if isinstance(names, StaticNames):
                self._attempts.clear()  # the file has the list
        found: dict[str, StreamFacts] = {}

        async def look(stream: Stream) -> None:
            found[str(stream)] = await self._stream(kinesis, stream)

        await for_each(streams, _AT_ONCE, look)
        return tuple(found[str(one)] for one in streams)

    async def _stream(self, kinesis: KinesisPort, stream: Stream) -> StreamFacts:
        name, request = f"stream {stream.name}", stream.request()
        describe = kinesis.describe_stream_summary
        answer, error = await self._try(
            self._action("DescribeStreamSummary"), name, describe, **request
        )
        if isinstance(error, NotFound):
            return StreamFacts(name=stream.name, error=error)
        summary = None if answer is None else answer["StreamDescriptionSummary"]
        await self._read(kinesis, stream)
        consumer = None if summary is None else await self._consumer(kinesis, stream, summary)
        return StreamFacts(name=stream.name, summary=summary, error=error, consumer=consumer)

    async def _read(self, kinesis: KinesisPort, stream: Stream) -> None:
        """Read one record of one shard; the reads of a shard are shared with its consumers."""
        name, request = f"stream {stream.name}", stream.request()
        listed, _ = await self._try(
            self._action("ListShards"), name, kinesis.list_shards, **request, MaxResults=1
        )
        for shard in (listed or {}).get("Shards", ())[:1]:
            iterator, _ = await self._try(
                self._action("GetShardIterator"),
                name,
                kinesis.get_shard_iterator,
                **request,
                ShardId=shard["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )
            if iterator is not None:
                arn = {"StreamARN": stream.arn} if stream.arn else {}
                await self._try(
                    self._action("GetRecords"),
                    name,
                    kinesis.get_records,
                    **arn,
                    ShardIterator=iterator["ShardIterator"],
                    Limit=1,
                )

    async def _consumer(
        self, kinesis: KinesisPort, stream: Stream, summary: Mapping[str, Any]
    ) -> str | None:
        """Status of the consumer that workers would find or register."""
        retrieval = self._config.retrieval_of(stream.name)
        if retrieval.mode is not RetrievalMode.FANOUT or retrieval.fan_out.consumer_arn is not None:
            return None
        answer, error = await self._try(
            "kinesis:DescribeStreamConsumer",
            f"stream {stream.name}",
            kinesis.describe_stream_consumer,
            StreamARN=summary["StreamARN"],
            ConsumerName=retrieval.fan_out.consumer_name or self._config.application_name,
        )
        if isinstance(error, NotFound):
            return ""
        return None if answer is None else str(answer["ConsumerDescription"]["ConsumerStatus"])

    # -- tables ----------------------------------------------------------------------------------

    async def _table(self, dynamodb: BotocoreDynamoDb) -> TableFacts:
        config, name = self._config, self._config.leases.table_name
        layout = Layout.of(config)
        answer, error = await self._try(
            "dynamodb:DescribeTable", f"table {name}", dynamodb.describe_table, TableName=name
        )
        await self._try(
            "dynamodb:DescribeTable",
            f"table {layout.coordinator_table}",
            dynamodb.describe_table,
            TableName=layout.coordinator_table,
        )
        if isinstance(error, NotFound):
            return TableFacts(name=name, error=error)
        table = None if answer is None else answer["Table"]
        await self._read_table(
            dynamodb, name, has_index=table is not None and index_status(table) is not None
        )
        version = None
        if table is not None:
            try:
                version = (
                    await fleet_items(dynamodb, layout, RandomIds(), random.Random())
                ).version
            except MldError:
                version = None  # denied calls are among the attempts
        return TableFacts(name=name, table=table, error=error, is_assigned=version in _ASSIGNED)

    async def _read_table(self, dynamodb: BotocoreDynamoDb, name: str, *, has_index: bool) -> None:
        table, key = f"table {name}", {LEASE_KEY: {"S": "Leader"}}
        await self._try("dynamodb:Scan", table, dynamodb.scan, TableName=name, Limit=1)
        await self._try("dynamodb:GetItem", table, dynamodb.get_item, TableName=name, Key=key)
        if has_index:
            query = my_leases_query(self._config.worker_id)
            await self._try(
                "dynamodb:Query", f"the index of {table}", dynamodb.query, TableName=name, **query
            )


def endpoint_origin(service: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """What overrides the address of a service outside of the properties file; None = nothing.

    Source: "Service-specific endpoints", AWS SDKs and Tools reference guide.
    """
    session = new_session()
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    for variable in (f"AWS_ENDPOINT_URL_{service.upper()}", "AWS_ENDPOINT_URL"):
        if environ.get(variable):
            return f"environment {variable}"
    profile = session.get_scoped_config()
    services = session.full_config.get("services", {}).get(profile.get("services"), {})
    if "endpoint_url" in services.get(service, {}) or "endpoint_url" in profile:
        return f"profile {session.get_config_variable('profile') or 'default'}"
    return None


# -- a child -----------------------------------------------------------------------------------------


async def try_child(config: Config) -> ChildTrial:
    """Start the program, send it ``initialize`` and ``leaseLost``, and see it end."""
    own = config.child.answer_timeout_s
    limit_s = _CHILD_S if own is None else min(own, _CHILD_S)
    facts = _child_facts(config, limit_s)
    child = replace(config.child, argv=facts.command(config.child.argv), answer_timeout_s=limit_s)
    guardian = Guardian()
    processor = RecordProcessor(
        ChildName(_SHARD, facts.child),
        child,
        ProcessLauncher(guardian, child.kclpy),
        None,
        SystemClock(),
        facts.variables(),
        facts.extras(),
    )
    began = time.monotonic()
    trial = ChildTrial()
    try:
        async with asyncio.TaskGroup() as group:
            await processor.initialize(group, TRIM_HORIZON)
            trial = ChildTrial(
                answered_s=time.monotonic() - began, resident_bytes=_resident_bytes(processor.pid)
            )
            await processor.lease_lost()
            await processor.stop()
    except* MldError as failed:
        trial = ChildTrial(error="; ".join(str(one) for one in failed.exceptions))
    finally:
        processor.kill()
        guardian.close()
    return trial


def _child_facts(config: Config, limit_s: float) -> ChildFacts:
    """What a child of the first shard learns."""
    name, identifier, arn = config.stream.name, None, None
    if config.streams is not None:
        account = "0" * 12
        listed = config.streams.streams[0] if config.streams.streams else ListedStream("stream")
        name, identifier = listed.name, f"{account}:{listed.name}:1"
        arn = str(listed.arn or arn_of(account, name, "us-east-1"))
    children = config.children_of(name)
    return ChildFacts(
        shard_id=_SHARD,
        lease_key=_SHARD if identifier is None else f"{identifier}:{_SHARD}",
        stream_name=name,
        application_name=config.application_name,
        worker_id=config.worker_id,
        pid=os.getpid(),
        announced=announced_to(config.child),
        answer_timeout_s=limit_s,
        spark=config.spark,
        stream_identifier=identifier,
        stream_arn=arn,
        child=0 if children > 1 else None,
        children=children,
    )


def _resident_bytes(pid: int | None) -> int | None:
    """Memory of a process that is its own or shared, ``VmRSS``; None = not known."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:
        return None
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return None
