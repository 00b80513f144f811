"""``kcl-mld records peek``: the records behind a checkpoint, e.g. to examine a poison record."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.arguments import SuggestingGroup, WholeNumber, is_named
from kcl_mld.cli.fleet_access import open_access, table_missing
from kcl_mld.cli.fleet_documents import VERSION
from kcl_mld.cli.lease_tables import seconds
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_file_and_names
from kcl_mld.cli.tables import Column, Section, TableRow, as_table, print_json, terminal
from kcl_mld.errors import ConfigError, NotFound, ResourceMissing
from kcl_mld.kernel.model.masking import printable
from kcl_mld.kernel.model.sequence import Sentinel
from kcl_mld.retrieval.record_peek import Peek, peek

if TYPE_CHECKING:
    from kcl_mld.cli.fleet_access import FleetAccess
    from kcl_mld.config.config import Config
    from kcl_mld.config.stream import SourceTraits
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.retrieval.rules.peek import PeekedRecord

_MOST = 1000


@click.group("records", cls=SuggestingGroup)
def records() -> None:
    """Show records of a stream as a consumer will get them."""


@records.command("peek")
@takes_file_and_names("SHARD")
@click.option(
    "--count",
    type=WholeNumber(1, _MOST),
    default=10,
    show_default=True,
    metavar="N",
    help="User records at most.",
)
@click.option("--data", "with_data", is_flag=True, help="Show the payloads, too.")
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table")
def peek_command(
    file: str,
    *,
    names: tuple[str, ...],
    count: int,
    with_data: bool,
    output: str,
) -> int:
    """Print the next records behind the checkpoint of SHARD, a shard id or a lease key.

    Changes nothing: the checkpoint stays where it is. Each read is one of the five a second that a
    shard has for all its consumers by polling; usually one is enough. A shard of a DynamoDB stream
    has at most two readers at a time.
    """
    if len(names) != 1:
        raise click.UsageError("Name one shard id or lease key behind the properties file")
    config = read_config(file)
    lease, found, why = asyncio.run(_peeked(config, names[0], count))
    documents = [_as_json(one, with_data=with_data) for one in found.records]
    if output == "jsonl":
        for document in documents:
            click.echo(json.dumps(document))
    elif output == "json":
        print_json(_document(config, lease, found, why) | {"records": documents})
    else:
        click.echo(_text(lease, found, why, config.traits, with_data=with_data))
    return 0


async def _peeked(config: Config, name: str, count: int) -> tuple[Lease, Peek, str | None]:
    """The row, what follows its checkpoint, and why that is nothing without a read."""
    nothing = Peek(records=(), reads=0, behind_s=None, is_end=False)
    with open_access(config) as access:
        lease = await _row(access, config, name)
        position = lease.checkpoint
        assert position is not None, "a row that is read has one"
        if position.sentinel is Sentinel.SHARD_END:
            return lease, nothing, "the shard was read to its end: no record follows"
        if position.sentinel is Sentinel.LATEST:
            why = (
                "nothing was checkpointed since it began at LATEST, which is wherever a worker "
                "starts: what follows can't be known"
            )
            return lease, nothing, why
        states = await access.streams.look({lease.stream_identifier}, fresh=True)
        stream = access.streams.streams.get(lease.stream_identifier)
        if stream is None:
            known = next((one for one in states if one.identifier == lease.stream_identifier), None)
            gone = "its stream is not known" if known is None else known.gone or known.unknown
            raise ResourceMissing(f"{name}: {gone}")
        delivers_all = (
            config.shards.skip_sync_if_leases_exist or config.retrieval.deliver_outside_shard
        )
        found = await peek(
            access.kinesis,
            stream,
            lease.shard_id,
            position,
            count,
            access.begins_s(stream),
            None if delivers_all else lease.hash_range,
        )
        return lease, found, None


async def _row(access: FleetAccess, config: Config, name: str) -> Lease:
    table = config.leases.table_name
    try:
        scan = await access.store.scan()
    except NotFound:
        raise table_missing(config) from None
    for key, why in scan.broken:
        if is_named(key, name):
            raise ConfigError(f"the row {key} of {table} can't be read: {why}")
    meant = [lease for lease in scan.leases if is_named(lease.lease_key, name)]
    if not meant:
        raise ConfigError(f"{name} is no lease of {table}; kcl-mld leases list shows them")
    if len(meant) > 1:
        keys = ", ".join(lease.lease_key for lease in meant)
        raise ConfigError(f"{name} is a shard of several streams; name one of {keys}")
    return meant[0]


def _document(config: Config, lease: Lease, found: Peek, why: str | None) -> dict[str, Any]:
    return {
        "version": VERSION,
        "table": config.leases.table_name,
        "lease": lease.lease_key,
        "checkpoint": str(lease.checkpoint),
        "reads": found.reads,
        "behind_s": found.behind_s,
        "is_end": found.is_end,
        "note": why,
    }


def _as_json(one: PeekedRecord, *, with_data: bool) -> dict[str, Any]:
    document = {
        "sequence_number": one.position.sequence_number,
        "sub_sequence_number": one.position.sub_sequence_number,
        "partition_key": one.partition_key,
        "arrived_s": one.arrived_s,
        "size_bytes": len(one.data),
        "aggregated": one.is_aggregated,
        "dropped": one.is_dropped,
    }
    return document | ({"data": base64.b64encode(one.data).decode()} if with_data else {})


def _text(
    lease: Lease, found: Peek, why: str | None, traits: SourceTraits, *, with_data: bool
) -> str:
    lines = [f"{printable(lease.lease_key)}: checkpoint {lease.checkpoint}"]
    if why is not None:
        return "\n".join([*lines, why])
    columns = [
        Column("sequence number", least=13, keeps_end=True),
        Column("sub", is_number=True),
        Column("partition key", least=8),
        Column("arrived", rank=1),
        Column("bytes", is_number=True),
        Column("aggregated", rank=2),
    ]
    columns += [Column("data", least=10)] if with_data else []
    rows = tuple(_row_of(one, with_data=with_data) for one in found.records)
    if rows:
        lines += ["", as_table(columns, [Section("", rows)], terminal()), ""]
    else:
        lines.append("no record was found behind it")
    behind = "" if found.behind_s is None else f"; the tip is {seconds(found.behind_s)} further"
    reads = f"{found.reads} read{'s' * (found.reads != 1)}"
    limit = (
        "of the shard's five a second"
        if traits.most_readers is None
        else f"beside the worker; {traits.most_readers} processes may read a shard at a time"
    )
    lines.append(f"{reads} {limit}{behind}")
    if found.is_end:
        lines.append("the shard ends there")
    return "\n".join(lines)


def _row_of(one: PeekedRecord, *, with_data: bool) -> TableRow:
    arrived = "-"
    if one.arrived_s is not None:
        arrived = datetime.fromtimestamp(one.arrived_s, UTC).isoformat(timespec="milliseconds")
    kind = "dropped" if one.is_dropped else "yes" if one.is_aggregated else "no"
    cells = (
        one.position.sequence_number,
        str(one.position.sub_sequence_number),
        one.partition_key,
        arrived,
        str(len(one.data)),
        kind,
    )
    return TableRow((*cells, _shown(one.data)) if with_data else cells)


def _shown(data: bytes) -> str:
    """As text where it is one, else as base64."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"base64 {base64.b64encode(data).decode()}"
