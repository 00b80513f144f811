"""``kcl-mld consumers``: the registrations of streams for enhanced fan-out, which cost money."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.arguments import SuggestingGroup
from kcl_mld.cli.fleet_access import observe, open_access
from kcl_mld.cli.fleet_documents import VERSION
from kcl_mld.cli.lease_tables import shown_time
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_execute, takes_file_and_names, takes_properties_file
from kcl_mld.cli.tables import Column, Section, TableRow, as_table, print_json, terminal
from kcl_mld.errors import ConfigError, MldError, MoveRefused, ResourceMissing
from kcl_mld.kernel.pages import page_numbers
from kcl_mld.streams.rules.stream_identity import created_at_s

if TYPE_CHECKING:
    from kcl_mld.cli.fleet_access import FleetAccess
    from kcl_mld.config.config import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """One consumer of one stream.

    Attributes:
        created_s: epoch seconds; None = not known.
        is_own: the file's workers use it.
    """

    stream: str
    name: str
    arn: str
    status: str
    created_s: float | None
    is_own: bool

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "stream": self.stream,
            "consumer": self.name,
            "arn": self.arn,
            "status": self.status,
            "created_s": self.created_s,
            "own": self.is_own,
        }


@click.group("consumers", cls=SuggestingGroup)
def consumers() -> None:
    """Show or remove the consumers of streams for enhanced fan-out."""


@consumers.command("list")
@takes_properties_file()
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
def list_command(file: str, *, output: str) -> int:
    """Print the consumers that are registered for the streams of the properties FILE.

    Those of other applications, too. Each costs money while it is registered. Streams of DynamoDB
    tables have none: exit code 2.
    """
    config = read_config(file)
    found = asyncio.run(_found(config))
    if output == "json":
        document = {"version": VERSION, "consumers": [one.as_json() for one in found]}
        print_json(document)
    elif found:
        click.echo(_table(found))
    else:
        click.echo("no consumer is registered")
    return 0


@consumers.command("deregister")
@takes_file_and_names("CONSUMER...")
@takes_execute
def deregister(file: str, *, names: tuple[str, ...], execute: bool) -> int:
    """Remove the registration of CONSUMER, a name or an ARN.

    The one that the workers of the properties FILE use is refused while they live. Another
    application that still uses it can't read by enhanced fan-out any more.
    """
    if not names:
        raise click.UsageError("Name a consumer behind the properties file")
    config = read_config(file)
    chosen = _chosen(asyncio.run(_found(config)), names)
    if any(one.is_own for one in chosen) and (owners := _living(config)):
        raise MoveRefused(f"workers use it and renew leases: {', '.join(owners)}; stop them first")
    if execute:
        asyncio.run(_deregister(config, chosen))
    document = {
        "version": VERSION,
        "executed": execute,
        "consumers": [one.as_json() for one in chosen],
    }
    print_json(document)
    if not execute:
        click.echo("Nothing was changed. --execute does it.", err=True)
    return 0


def _chosen(found: list[Registration], names: tuple[str, ...]) -> list[Registration]:
    chosen = []
    for name in names:
        meant = [one for one in found if name in (one.name, one.arn)]
        if not meant:
            raise ConfigError(
                f"{name} is no consumer of these streams; kcl-mld consumers list shows them"
            )
        if len(meant) > 1:
            arns = ", ".join(one.arn for one in meant)
            raise ConfigError(f"{name} is a consumer of several streams; name one of {arns}")
        chosen += meant
    return chosen


def _living(config: Config) -> list[str]:
    """Owners of leases that were seen to renew one."""
    try:
        _snapshots, explanation = observe(config)
    except ResourceMissing:
        return []
    owners = {
        one.lease.actual_owner for one in explanation.shards if one.lives and one.lease is not None
    }
    return sorted(str(owner) for owner in owners if owner is not None)


async def _found(config: Config) -> list[Registration]:
    """All consumers, by stream and name.

    Raises:
        ConfigError: the service has no enhanced fan-out.
    """
    if not config.traits.may_fan_out:
        raise ConfigError(
            "DynamoDB Streams has no enhanced fan-out, so its streams have no consumers"
        )
    own = config.retrieval.fan_out.consumer_name or config.application_name
    found: list[Registration] = []
    with open_access(config) as access:
        for one in await access.streams.look((), fresh=True):
            if one.gone is not None:
                raise ResourceMissing(one.gone)
        for stream in access.streams.streams.values():
            summary = await access.kinesis.describe_stream_summary(**stream.request())
            arn = summary["StreamDescriptionSummary"]["StreamARN"]
            given = config.retrieval.fan_out.consumer_arn
            found += [
                Registration(
                    stream=stream.name,
                    name=one["ConsumerName"],
                    arn=one["ConsumerARN"],
                    status=one["ConsumerStatus"],
                    created_s=created_at_s(one.get("ConsumerCreationTimestamp")),
                    is_own=one["ConsumerARN"] == given
                    or (given is None and one["ConsumerName"] == own),
                )
                for one in await _listed(access, arn)
            ]
    return sorted(found, key=lambda one: (one.stream, one.name))


async def _listed(access: FleetAccess, arn: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    request: dict[str, Any] = {"StreamARN": arn}
    numbers = page_numbers("ListStreamConsumers")
    while True:
        next(numbers)
        answer = await access.kinesis.list_stream_consumers(**request)
        found += answer["Consumers"]
        if not answer.get("NextToken"):
            return found
        request = {"StreamARN": arn, "NextToken": answer["NextToken"]}


async def _deregister(config: Config, chosen: list[Registration]) -> None:
    with open_access(config) as access:
        for one in chosen:
            click.echo(f"{one.name}: deregistering", err=True)
            try:
                await access.kinesis.deregister_stream_consumer(ConsumerARN=one.arn)
            except MldError as error:
                raise MoveRefused(
                    f"{one.name} of {one.stream} is not deregistered: {error}"
                ) from None


def _table(found: list[Registration]) -> str:
    columns = [Column("stream"), Column("consumer"), Column("status"), Column("created", rank=1)]
    columns.append(Column("used by"))
    rows = [
        TableRow(
            (
                one.stream,
                one.name,
                one.status,
                "-" if one.created_s is None else shown_time(one.created_s),
                "this file" if one.is_own else "-",
            )
        )
        for one in found
    ]
    return as_table(columns, [Section("", tuple(rows))], terminal())
