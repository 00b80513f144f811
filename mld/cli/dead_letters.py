"""``kcl-mld dead-letters``: lists records that were set aside, and replays them to the program."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.aws import clients
from kcl_mld.aws.credentials import AwsSessions, require_credentials
from kcl_mld.aws.regions import resolve_region
from kcl_mld.children.adapters.letters import find_letters
from kcl_mld.children.rules.child_environment import ChildFacts
from kcl_mld.cli.arguments import SuggestingGroup
from kcl_mld.cli.fleet_access import open_access
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_file_and_names, takes_properties_file
from kcl_mld.cli.replay import EXIT_S, require_startable, started_child, takes_timeout
from kcl_mld.cli.tables import Column, Section, TableRow, as_table, print_json, terminal
from kcl_mld.config.stream import Stream
from kcl_mld.errors import ConfigError, LetterRefused, MalformedData, NotFound, TrimmedData
from kcl_mld.kernel.model.masking import printable
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from kcl_mld.leases.model.containment import PositionRange
from kcl_mld.retrieval.record_peek import read_range
from kcl_mld_protocol.messages import (
    Initialize,
    LeaseLost,
    ProcessRecords,
    Record,
    ShutdownRequested,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.children.adapters.letters import Letters
    from kcl_mld.config.config import Config
    from kcl_mld_protocol.messages import DaemonMessage

_SUFFIX, _OUTCOME_SUFFIX = ".json", ".replay.json"
_LEAST_PREFIX = 6
#: What amazon_kclpy writes when a processor raised, before it answers all the same.
_CAUGHT = b"Caught exception from action dispatch: "


@click.group("dead-letters", cls=SuggestingGroup)
def dead_letters() -> None:
    """Show dead letters, and give their records to the program again."""


@dead_letters.command("list")
@takes_properties_file()
@click.option("-o", "--output", type=click.Choice(["table", "json", "jsonl"]), default="table")
def list_command(file: str, *, output: str) -> int:
    """List the dead letters at the destination of FILE, the oldest first."""
    _config, letters = _opened(file)
    found = _all(letters)
    if output == "jsonl":
        for one in found:
            click.echo(json.dumps(one))
    elif output == "json":
        print_json({"version": 1, "letters": found})
    else:
        click.echo(_table(found))
    return 0


@dead_letters.command("show")
@takes_file_and_names("ID")
def show_command(file: str, *, names: tuple[str, ...]) -> int:
    """Print the dead letter ID as JSON, with what became of it. A beginning of the id is enough."""
    if len(names) != 1:
        raise click.UsageError("Name one id behind the properties file")
    _config, letters = _opened(file)
    (letter,) = _named(letters, names)
    print_json(letter)
    return 0


@dead_letters.command("replay")
@takes_file_and_names("ID...")
@takes_timeout
@click.pass_context
def replay_command(
    context: click.Context, file: str, *, names: tuple[str, ...], timeout_s: float
) -> None:
    """Give the records of each dead letter ID to a child of FILE, one child a letter.

    No lease is needed or touched, and checkpoints go nowhere. The order is lost: what followed these
    records was processed long ago. Records that a letter lacks are read from the stream. What became
    of it is written beside the letter. Exit code 1 if a child failed.
    """
    if not names:
        raise click.UsageError("Name one or more ids behind the properties file")
    config, letters = _opened(file)
    require_startable(config.child.argv, config.child.kclpy)
    click.echo(
        "The order is lost: these records are processed after those that followed them.", err=True
    )
    failures = 0
    for letter in _named(letters, names):
        failure = _replayed(config, letter, timeout_s)
        failures += failure is not None
        outcome = {
            "id": letter["id"],
            "replayedAtMillis": int(time.time() * 1000),
            "outcome": "processed" if failure is None else "failed",
            "message": failure,
        }
        letters.write(f"{letter['id']}{_OUTCOME_SUFFIX}", json.dumps(outcome).encode())
        result = "processed" if failure is None else f"failed: {printable(failure)}"
        click.echo(f"{letter['id']}: {result}")
    context.exit(1 if failures else 0)


def _opened(file: str) -> tuple[Config, Letters]:
    """The configuration and its destination."""
    config = read_config(file)
    if config.contain is None:
        raise ConfigError(
            "the file has no childFailurePolicy = deadletter; dead letters of an earlier version "
            "of the file are shown with that version",
            key="childFailurePolicy",
        )
    region: str | None = None

    def client(settings: clients.ClientSettings) -> Any:
        session = AwsSessions(settings.region).of(config.aws.kinesis_credentials)
        require_credentials(session, "AwsCredentialsProvider")
        return clients.make_client(session, settings)

    if config.contain.destination.startswith("s3:"):
        region = resolve_region(config.aws.kinesis_region or config.stream.region)
    letters = find_letters(config.contain.destination, client, region)
    if letters is None:
        raise ConfigError(
            "a queue can't be listed: receiving a message hides it from others",
            key="onFailureDestination",
        )
    return config, letters


class _NoLetter(LetterRefused):
    """A file among the letters that is none."""


def _all(letters: Letters) -> list[dict[str, Any]]:
    """All letters with their outcomes, the oldest first."""
    names = letters.names()
    ids = [
        name.removesuffix(_SUFFIX)
        for name in names
        if name.endswith(_SUFFIX) and not name.endswith(_OUTCOME_SUFFIX) and name[0] != "."
    ]
    found = []
    for one in ids:
        try:
            found.append(_letter(letters, one, names))
        except _NoLetter as error:
            click.echo(str(error), err=True)
    return sorted(found, key=lambda one: (one.get("deadLetteredAtMillis", 0), one["id"]))


def _letter(letters: Letters, letter_id: str, names: Sequence[str]) -> dict[str, Any]:
    """A document, and under ``replay`` its outcome if there is one."""
    letter = _document(letters, f"{letter_id}{_SUFFIX}")
    outcome = f"{letter_id}{_OUTCOME_SUFFIX}"
    return letter | ({"replay": _document(letters, outcome)} if outcome in names else {})


def _document(letters: Letters, name: str) -> dict[str, Any]:
    try:
        document = json.loads(letters.read(name))
    except ValueError:
        document = None
    if not isinstance(document, dict) or "id" not in document:
        raise _NoLetter(f"{name} is no dead letter: move it elsewhere")
    return document


def _named(letters: Letters, words: Sequence[str]) -> list[dict[str, Any]]:
    """The letters that ids, or beginnings of ids, name."""
    names = letters.names()
    found = []
    for word in words:
        meant = [
            name.removesuffix(_SUFFIX)
            for name in names
            if name.startswith(word) and name.endswith(_SUFFIX)
            if not name.endswith(_OUTCOME_SUFFIX)
        ]
        if len(word) < _LEAST_PREFIX or len(meant) != 1:
            why = "is no dead letter" if not meant else "names several; write more of the id"
            if len(word) < _LEAST_PREFIX:
                why = f"is too short: write at least {_LEAST_PREFIX} characters of the id"
            raise ConfigError(f"{printable(word)} {why}; kcl-mld dead-letters list shows them")
        found.append(_letter(letters, meant[0], names))
    return found


def _replayed(config: Config, letter: dict[str, Any], timeout_s: float) -> str | None:
    """Why a child failed at the records of a letter; None = it processed them."""
    try:
        records = _records(config, letter)
    except MalformedData as error:
        return str(error)
    facts = ChildFacts(
        shard_id=letter["shardId"],
        lease_key=letter["leaseKey"],
        stream_name=letter["streamName"],
        application_name=config.application_name,
        worker_id="replay",
        pid=os.getpid(),
        stream_arn=letter["streamArn"],
    )
    messages: tuple[DaemonMessage, ...] = (
        Initialize(letter["shardId"], letter["firstSequenceNumber"], 0),
        ProcessRecords(records, None),
        ShutdownRequested(),
        LeaseLost(),
    )
    command, kclpy = facts.command(config.child.argv), config.child.kclpy
    with started_child(command, facts, timeout_s, kclpy) as peer:
        for message in messages:
            exchange = peer.send(message)
            if not exchange.answered:
                return f"{message.action}: {exchange.failure}"
            if isinstance(message, ProcessRecords) and _CAUGHT in peer.stderr:
                return f"{message.action}: its processor raised an exception"
        peer.close_stdin()
        peer.wait_exit(EXIT_S)
    return None


def _records(config: Config, letter: dict[str, Any]) -> tuple[Record, ...]:
    """The records of a letter: its own, else those of the stream.

    Raises:
        MalformedData: the stream does not have all of them any more.
    """
    if "records" in letter:
        return tuple(
            Record(
                one["data"],
                one["partitionKey"],
                one["sequenceNumber"],
                one["approximateArrivalTimestamp"],
                one["subSequenceNumber"],
                one.get("schemaVersionId"),
                one.get("schemaName"),
                one.get("dataFormat"),
            )
            for one in letter["records"]
        )
    wanted = PositionRange(
        ExtendedSequenceNumber(letter["firstSequenceNumber"], letter["firstSubSequenceNumber"]),
        ExtendedSequenceNumber(letter["lastSequenceNumber"], letter["lastSubSequenceNumber"]),
    )
    stream = Stream(letter["streamName"], letter["streamArn"])
    with open_access(config) as access:
        try:
            found = asyncio.run(read_range(access.kinesis, stream, letter["shardId"], wanted))
        except (NotFound, TrimmedData) as error:
            raise MalformedData(f"the stream does not have its records any more: {error}") from None
    if len(found) < letter["recordCount"]:
        raise MalformedData(
            f"the stream has {len(found)} of its {letter['recordCount']} records: the others are"
            " past retention"
        )
    return tuple(
        Record(
            base64.b64encode(one.data).decode(),
            one.partition_key,
            one.position.sequence_number,
            None if one.arrived_s is None else int(one.arrived_s * 1000),
            one.position.sub_sequence_number,
        )
        for one in found
    )


def _table(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return "no dead letters"
    columns = [
        Column("id"),
        Column("shard", least=8, keeps_end=True),
        Column("sequence number", least=13, rank=2, keeps_end=True),
        Column("records", is_number=True),
        Column("reason"),
        Column("since", rank=1),
        Column("replay"),
    ]
    rows = tuple(
        TableRow(
            (
                str(one["id"])[:12],
                printable(str(one.get("leaseKey"))),
                str(one.get("firstSequenceNumber")),
                str(one.get("recordCount")),
                printable(str(one.get("reason"))),
                _time(one.get("deadLetteredAtMillis")),
                str(one.get("replay", {}).get("outcome", "-")),
            )
        )
        for one in found
    )
    return as_table(columns, [Section("", rows)], terminal())


def _time(millis: object) -> str:
    if not isinstance(millis, int):
        return "-"
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="seconds")
