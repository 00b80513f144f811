"""``kcl-mld leases migrate``: a lease table moves between keys of one stream and of several."""

from __future__ import annotations

import asyncio
import base64
import random
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.aws import clients
from kcl_mld.aws.credentials import make_session, require_credentials
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.aws.kinesis_port import open_kinesis
from kcl_mld.aws.regions import resolve_region
from kcl_mld.cli.arguments import WholeNumber
from kcl_mld.cli.fleet_access import table_region
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.tables import print_json
from kcl_mld.config.stream import (
    TABLE_STREAM_EPOCH,
    Stream,
    StreamArn,
    TableStreamArn,
    parse_arn,
)
from kcl_mld.errors import MalformedData, MoveRefused, NotFound, ResourceMissing
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.model.masking import mask, printable
from kcl_mld.leases.model.lease_move import RowKind
from kcl_mld.leases.rules.lease_migration import (
    MigrationPhase,
    identifiers_of,
    moving_to,
    plan_move,
)
from kcl_mld.ops.lease_migration import LeaseMigration
from kcl_mld.streams.rules.stream_identity import created_at_s, epoch_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kcl_mld.config.config import Config
    from kcl_mld.leases.model.table_item import Item
    from kcl_mld.leases.rules.lease_migration import MigrationPlan, RowWrite

#: Number of writes between two lines of progress.
_REPORT_EVERY = 500
_DONE = {
    MigrationPhase.COPY: "copied",
    MigrationPhase.DELETE: "deleted",
    MigrationPhase.VALIDATE: "made valid",
}


def print_move(
    table: str, to: RowKind, identifier: str | None, move: MigrationPlan, *, done: bool
) -> None:
    """Print a plan for people.

    Args:
        identifier: ``account:stream:epoch`` of the moved rows, or None.
        move: the plan, without problems.
        done: whether it was carried out.
    """
    if not move.steps:
        click.echo(f"{table}: nothing to do, all rows have {to} keys")
        return
    moved = f"{move.moved} row{'s' * (move.moved != 1)}"
    of = f" of {identifier}" if identifier else ""
    click.echo(f"{table}: {moved}{of} {'moved' if done else 'to move'} to {to} keys\n")
    width = max(map(len, MigrationPhase))
    for step in move.steps:
        click.echo(f"  {step.phase:<{width}}  {_described_write(step)}")
    if move.kept:
        click.echo(f"\nLeft as they are: {', '.join(map(printable, move.kept))}")
    if not done:
        click.echo("\nNothing was written. Stop every worker, then run this with --apply.")


def _described_write(step: RowWrite) -> str:
    text = printable(step.key)
    if step.source is not None:
        text += f"  from {printable(step.source)}"
    if step.phase is MigrationPhase.COPY and step.after is not None:
        position = step.after.get("checkpoint", {}).get("S", "-")
        sub = step.after.get("checkpointSubSequenceNumber", {}).get("N", "0")
        text += f"  at {printable(position)}" + (f"/{sub}" if sub != "0" else "")
    return text


def move_as_json(
    table: str, to: RowKind, identifier: str | None, move: MigrationPlan, *, done: bool
) -> dict[str, Any]:
    """A plan for scripts; the arguments are those of :func:`print_move`.

    Items are DynamoDB JSON, binary values as base64.
    """
    return {
        "table": table,
        "to": str(to),
        "stream": identifier,
        "rows": move.moved,
        "written": done,
        "steps": [
            {
                "do": str(step.phase),
                "row": step.key,
                "from": step.source,
                "item": _plain(step.after),
            }
            for step in move.steps
        ],
        "left": list(move.kept),
    }


def _plain(value: Any) -> Any:
    """DynamoDB JSON with base64 for bytes, as in the service's own JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "items"):
        return {name: _plain(one) for name, one in value.items()}
    return value


def print_progress(move: MigrationPlan) -> Callable[[RowWrite], None]:
    """Reports progress on stderr: at the end of each phase, and every 500 rows."""
    totals = Counter(step.phase for step in move.steps)
    done: Counter[MigrationPhase] = Counter()

    def report(step: RowWrite) -> None:
        done[step.phase] += 1
        count, total = done[step.phase], totals[step.phase]
        if count == total or count % _REPORT_EVERY == 0:
            click.echo(f"{_DONE[step.phase]}: {count} of {total} rows", err=True)

    return report


@click.command("migrate")
@takes_properties_file()
@click.option(
    "--to",
    "to",
    type=click.Choice([str(kind) for kind in RowKind]),
    required=True,
    help="Kind of lease keys to convert the rows to.",
)
@click.option(
    "--stream",
    metavar="STREAM",
    help="Name, ARN or account:name:epoch of the stream. Default: the stream of FILE.",
)
@click.option(
    "--epoch",
    type=WholeNumber(1, 2**63 - 1),
    help="Creation epoch in the new keys. Default: the stream's creation time, in the unit of the "
    "table's other rows, else in seconds.",
)
@click.option(
    "--apply",
    "apply",
    is_flag=True,
    help="Write the changes; without it the command only prints them.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
def migrate(
    file: str,
    to: str,
    stream: str | None,
    epoch: int | None,
    *,
    apply: bool,
    as_json: bool,
) -> int:
    """Convert a lease table between single-stream and multi-stream keys.

    Reads the lease table of the application that FILE describes and prints what it would write.
    With --apply it first looks for live workers for failoverTimeMillis, and writes only if there
    are none. If it was interrupted, run it again to continue, or with the other --to to go back.
    """
    config = read_config(file)
    asked = _asked(stream, epoch, config)
    asyncio.run(_migrate(config, RowKind(to), asked, apply=apply, as_json=as_json))
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedStream:
    """The stream as the user named it; what is None is found out.

    Attributes:
        name: bare; None = the file names none, or several.
        account: twelve digits.
        epoch: for the new keys.
    """

    name: str | None = None
    arn: str | None = None
    account: str | None = None
    epoch: int | None = None


def _asked(stream: str | None, epoch: int | None, config: Config) -> AskedStream:
    text = stream or config.stream.arn or config.stream.name
    if not text and config.streams is not None and config.streams.selection is None:
        listed = config.streams.streams
        text = str(listed[0]) if len(listed) == 1 else ""
    asked = _parsed(text) if text else AskedStream()
    if epoch is None:
        return asked
    if asked.epoch not in (None, epoch):
        raise click.UsageError("--epoch differs from the epoch in --stream; give one of them")
    return replace(asked, epoch=epoch)


def _parsed(text: str) -> AskedStream:
    try:
        if text.startswith("arn:"):
            arn = parse_arn(text)
            epoch = TABLE_STREAM_EPOCH if isinstance(arn, TableStreamArn) else None
            return AskedStream(name=arn.name, arn=text, account=arn.account, epoch=epoch)
        if ":" in text:
            stream = Stream.parse_identifier(text)
            return AskedStream(name=stream.name, account=stream.account, epoch=stream.epoch)
    except MalformedData as error:
        raise click.BadParameter(mask(str(error)), param_hint="--stream") from None
    return AskedStream(name=text)


async def _migrate(
    config: Config, to: RowKind, asked: AskedStream, *, apply: bool, as_json: bool
) -> None:
    aws, table = config.aws, config.leases.table_name
    # No lease is renewed here, so a slow answer is awaited, whatever failoverTimeMillis is.
    settings = clients.patient_dynamodb_settings(config)
    session = make_session(
        aws.dynamodb_credentials or aws.kinesis_credentials, table_region(config)
    )
    require_credentials(session, "AwsCredentialsProvider")
    with closing(CallPool("leases", 1)) as pool:
        dynamodb = BotocoreDynamoDb(clients.make_client(session, settings), pool)
        migration = LeaseMigration(dynamodb, table, random.Random())
        try:
            items = await migration.scan()
        except NotFound:
            raise ResourceMissing(f"the lease table {table} does not exist") from None
        identifier = await _identifier(config, to, asked, items)
        move = _planned(table, items, to, identifier)
        if apply and move.steps:
            items = await migration.scan_at_rest(config.leases.failover_s, _report_wait)
            move = _planned(table, items, to, identifier)
            await migration.carry_out(move.steps, print_progress(move))
    if as_json:
        print_json(move_as_json(table, to, identifier, move, done=apply))
    else:
        print_move(table, to, identifier, move, done=apply)


def _planned(
    table: str, items: Iterable[Item], to: RowKind, identifier: str | None
) -> MigrationPlan:
    move = plan_move(items, to, identifier)
    if move.problems:
        why = "; ".join(move.problems)
        raise MoveRefused(f"table {table} can't be moved to {to} keys: {why}")
    return move


def _report_wait(left_s: float) -> None:
    click.echo(f"Looking for live workers: {left_s:.3g} s left", err=True)


async def _identifier(
    config: Config, to: RowKind, asked: AskedStream, items: Iterable[Item]
) -> str | None:
    """``account:stream:epoch`` of the rows to move; None = there is no multi-stream row."""
    known = identifiers_of(items)
    if to is RowKind.SINGLE:
        return _identifier_of_table(asked, known)
    if asked.name is None:
        raise click.UsageError("the file names no stream, or several: say which by --stream")
    begun = moving_to(items, asked.name)
    if begun is not None and asked.epoch is None:
        return begun
    if asked.account is None or asked.epoch is None:
        asked = await _described(config, asked, known)
    return Stream(str(asked.name), account=asked.account, epoch=asked.epoch).identifier


def _identifier_of_table(asked: AskedStream, known: tuple[str, ...]) -> str | None:
    if len(known) != 1:
        return None  # nothing to move, or too much: the plan reports it
    stream = Stream.parse_identifier(known[0])
    wanted = [
        (asked.name, stream.name),
        (asked.account, stream.account),
        (asked.epoch, stream.epoch),
    ]
    if any(mine not in (None, theirs) for mine, theirs in wanted):
        raise MoveRefused(
            f"the table has rows of {known[0]}, which is not the stream {asked.name} that was asked "
            f"for; if these rows are meant, add --stream {known[0]}"
        )
    return known[0]


async def _described(config: Config, asked: AskedStream, known: Iterable[str]) -> AskedStream:
    """Account and creation epoch as Kinesis reports them."""
    region = resolve_region(clients.kinesis_settings(config).region)
    session = make_session(config.aws.kinesis_credentials, region)
    request = {"StreamName": asked.name} | ({"StreamARN": asked.arn} if asked.arn else {})
    with closing(CallPool("control", 1)) as pool:
        kinesis = open_kinesis(config, partial(clients.make_client, session), pool, pool)
        try:
            answer = await kinesis.describe_stream_summary(**request)
        except NotFound:
            raise ResourceMissing(
                f"the stream {asked.name} does not exist, so its account and creation time are not "
                "known: correct the name, or give --stream account:name:epoch"
            ) from None
    summary = answer["StreamDescriptionSummary"]
    account = StreamArn.parse(summary["StreamARN"]).account
    unit = "auto" if config.streams is None else config.streams.epoch_unit
    epoch = asked.epoch
    if epoch is None:
        created_s = created_at_s(summary.get("StreamCreationTimestamp"))
        if created_s is None:
            raise ResourceMissing(
                f"Kinesis does not say when the stream {asked.name} was created: give --epoch"
            )
        epoch = epoch_of(account, str(asked.name), created_s, known, unit)
    return replace(asked, account=account, epoch=epoch)
