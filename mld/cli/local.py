"""``kcl-mld local``: the daemon against an AWS embedded on this machine, or that AWS alone."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
from botocore.exceptions import ClientError, ParamValidationError

import kcl_mld
from kcl_mld.cli.arguments import WholeNumber
from kcl_mld.cli.loading import read_properties
from kcl_mld.cli.local_target import Target, target_of
from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.overrides import given_overrides
from kcl_mld.config.overrides import Overrides
from kcl_mld.config.properties import Entry, last_of_each, parse
from kcl_mld.config.stream import LATEST_LABEL
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.text import counted
from kcl_mld.local.embedded import ControlRefused, EmbeddedAws
from kcl_mld.local.feeding import put_all, put_items, read_records

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kcl_mld.config.stream import TableStreamArn

#: Keys (lower case) that decide where requests go and who signs them; all are replaced.
_REPLACED = frozenset(
    {
        "awscredentialsprovider",
        "awscredentialsproviderdynamodb",
        "awscredentialsprovidercloudwatch",
        "awscredentialsproviderglue",
        "regionname",
        "kinesisendpoint",
        "dynamodbendpoint",
        "cloudwatchendpoint",
        "glueendpoint",
    }
)
_REPLACED_PREFIXES = ("kinesisclient.", "dynamodbclient.", "cloudwatchclient.", "glueclient.")
_PLAIN = re.compile(r"[^A-Za-z0-9._/-]")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
#: Runs the daemon of this very package: where the user stands, which is the daemon's working
#: directory too, may be a module with the name of one of ours.
#: Its stdin ends with the process that started it, however that ends; so then does the daemon.
_DAEMON = """\
import os, signal, sys, threading

def stop_with_starter():
    os.read(0, 1)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=stop_with_starter, daemon=True).start()
sys.path.insert(0, sys.argv.pop(1))
from kcl_mld.cli import main
main()
"""


def starts_at_latest(values: Mapping[str, str]) -> bool:
    """Whether a worker of this file skips records that are in the stream before it starts."""
    position = values.get("initialpositioninstream", "").strip().upper() or "LATEST"
    return position == "LATEST" and "initialpositioninstreamextended" not in values


def overridden(data: bytes, source: str, replacements: Mapping[str, str]) -> bytes:
    """The file's entries without endpoints, region and credentials, then ``replacements``.

    What is kept stays in its line, so that findings about the copy are right for the file.

    Args:
        replacements: key to value; each also replaces the file's own entry of that key.
    """
    lines: list[str] = []
    for entry in parse(data, source):
        if not _is_replaced(entry, replacements):
            lines += [""] * (entry.line - 1 - len(lines))
            lines.append(_line(entry.key, entry.value))
    lines += [_line(key, value) for key, value in replacements.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _is_replaced(entry: Entry, replacements: Mapping[str, str]) -> bool:
    key = entry.key.lower()
    dropped = _REPLACED | {key.lower() for key in replacements}
    return key in dropped or key.startswith(_REPLACED_PREFIXES)


def _line(key: str, value: str) -> str:
    return f"{_escaped(key)}={_escaped(value)}"


def values_of(entries: tuple[Entry, ...]) -> dict[str, str]:
    """Values by their keys in lower case."""
    return {key.lower(): entry.value for key, entry in last_of_each(entries).items()}


def _escaped(text: str) -> str:
    return _PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


class LocalCommand(click.Command):
    """Passes the arguments after ``--`` to the daemon, as the object of the context."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments before ``--``."""
        end = args.index("--") if "--" in args else len(args)
        ctx.obj = tuple(args[end + 1 :])
        return super().parse_args(ctx, args[:end])


@click.command(
    "local",
    cls=LocalCommand,
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="run against an embedded AWS",
    epilog="Arguments of the daemon follow --: kcl-mld local FILE -- --log-level debug",
)
@takes_properties_file(metavar="[FILE] [-- DAEMON ARGUMENTS]", is_required=False)
@click.option(
    "--put",
    type=click.Path(exists=True, dir_okay=False),
    metavar="FILE.jsonl",
    help='Put these records first, one per line: {"partitionKey": …, "data": text} or dataBase64; '
    "into a table, items as plain JSON.",
)
@click.option(
    "--stream",
    "names",
    multiple=True,
    metavar="NAME",
    help="Create this stream (without FILE); repeatable.",
)
@click.option(
    "--shards",
    type=WholeNumber(1, 10_000),
    default=2,
    show_default=True,
    help="Shards of each stream.",
)
@click.option(
    "--table-key",
    default="pk",
    show_default=True,
    metavar="NAME",
    help="Partition key of each table that is created; its type is S.",
)
@click.option(
    "--table-shard-s",
    type=WholeNumber(1, 10**8),
    default=4 * 3600,
    show_default=True,
    metavar="SECONDS",
    help="Age at which a shard of a table's stream is replaced.",
)
@click.option("--limits", is_flag=True, help="Apply the rate limits of Kinesis.")
@click.option(
    "--kinesis-port",
    type=WholeNumber(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of Kinesis; 0 = a free one.",
)
@click.option(
    "--moto-port",
    type=WholeNumber(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of the other services; 0 = a free one.",
)
@click.pass_obj
def local(
    daemon_arguments: tuple[str, ...],
    *,
    file: str | None,
    put: str | None,
    names: tuple[str, ...],
    shards: int,
    table_key: str,
    table_shard_s: int,
    limits: bool,
    kinesis_port: int,
    moto_port: int,
) -> int:
    """Run Kinesis, DynamoDB, CloudWatch, STS, Glue and S3 on loopback, and the daemon of FILE.

    Creates the streams, tables and consumers that FILE names, replaces its endpoints, region and
    credentials, and prints the addresses of the servers for other programs. Without FILE only the
    servers run, for your tests. Ctrl-C stops everything; nothing is kept.
    """
    data, overrides, values = None, Overrides(), dict[str, str]()
    target = Target(names, "us-east-1", "123456789012")
    if file is not None:
        if names:
            raise click.UsageError(
                "--stream goes without a properties file, which names the stream"
            )
        data, overrides = read_properties(file), given_overrides()
        values = values_of(overrides.entries(data, file))
        target = target_of(values, file)
    elif daemon_arguments:
        raise click.UsageError("arguments for the daemon need a properties file")
    if put is not None and not target.streams and not target.tables:
        raise click.UsageError("--put needs a properties file or --stream")
    options = ["--account-id", target.account_id, *(["--limits"] if limits else [])]
    options += ["--table-shard-s", str(table_shard_s)]
    aws = EmbeddedAws(
        kinesis_port=kinesis_port, moto_port=moto_port, region=target.region, options=options
    )
    with stop_on_signals() as stopped, aws:
        for stream in target.streams:
            prepare_stream(aws, stream, shards, put)
        created = {arn: prepare_table(aws, arn.table, table_key, put) for arn in target.tables}
        prepare_consumers(aws, target.consumers)
        if data is None or file is None:
            with suppress(KeyboardInterrupt):  # as soon as anybody knows whom to stop
                print_endpoints(aws, err=False)
                signal.pause()
            return 0
        replaced = replacements(aws, values, puts=bool(put))
        replaced |= replaced_tables(aws, values, created)
        text = overridden(data, file, replaced)
        settings = [one for one in overrides.settings if not _is_replaced(one, replaced)]
        environment = replace(overrides, settings=tuple(settings)).as_environment()
        with tempfile.TemporaryDirectory(prefix="kcl-mld-") as folder:
            copy = Path(folder, Path(file).name)
            copy.write_bytes(text)
            argv = ["--properties", str(copy), "--shown-as", file, *daemon_arguments]
            print_endpoints(aws, err=True)
            env = aws.environment_for_child() | environment
            return stopped.run(run_daemon(argv, env))


def prepare_stream(aws: EmbeddedAws, stream: str, shards: int, put: str | None) -> None:
    """Create the stream and put the records of a file.

    Raises:
        ConfigError: Kinesis would refuse the name or a record.
    """
    kinesis = aws.client("kinesis")
    try:
        kinesis.create_stream(StreamName=stream, ShardCount=shards)
        if put is not None:

            def put_lines(lines: BinaryIO, progress: Callable[[int], object]) -> int:
                return put_all(kinesis, stream, read_records(lines, put), progress)

            put_file(put_lines, stream, Path(put), "record")
    except (ClientError, ParamValidationError) as error:
        raise ConfigError(f"stream {stream}: {error}") from None


def prepare_table(aws: EmbeddedAws, table: str, key: str, put: str | None) -> str:
    """Create a table with a stream, put the items of a file, and return the stream's ARN.

    Raises:
        ConfigError: DynamoDB would refuse the table or an item.
    """
    dynamodb = aws.client("dynamodb")
    try:
        described = dynamodb.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
    except (ClientError, ParamValidationError) as error:
        raise ConfigError(f"table {table}: {error}") from None
    if put is not None:

        def put_lines(lines: BinaryIO, progress: Callable[[int], object]) -> int:
            return put_items(dynamodb, table, lines, put, progress)

        put_file(put_lines, table, Path(put), "item")
    return str(described["TableDescription"]["LatestStreamArn"])


def prepare_consumers(aws: EmbeddedAws, arns: Sequence[str]) -> None:
    """Have the consumers that the file names by their ARN.

    Raises:
        ConfigError: one is of a stream that the file does not name, or of another region.
    """
    for arn in arns:
        try:
            aws.control(consumers=[arn])
        except ControlRefused as refused:
            why = f"not a consumer of a stream of this file, in {aws.region}: {arn} ({refused})"
            raise ConfigError(why, key="consumerArn") from None


def replacements(aws: EmbeddedAws, values: Mapping[str, str], *, puts: bool) -> dict[str, str]:
    """Keys that make a worker of the file talk to the embedded AWS."""
    replaced = {
        "AwsCredentialsProvider": "DefaultCredentialsProvider",
        "regionName": aws.region,
        "kinesisEndpoint": aws.kinesis_url,
        "dynamoDBEndpoint": aws.moto_url,
        "cloudWatchClient.endpointOverride": aws.moto_url,
    }
    if puts and starts_at_latest(values):
        click.echo("initialPositionInStream is LATEST: TRIM_HORIZON is used to see --put", err=True)
        replaced["initialPositionInStream"] = "TRIM_HORIZON"
    return replaced


def replaced_tables(
    aws: EmbeddedAws, values: Mapping[str, str], created: Mapping[TableStreamArn, str]
) -> dict[str, str]:
    """Keys that make a worker read the tables that were created, whose streams have other labels."""
    if not created:
        return {}
    replaced = {"kinesisEndpoint": aws.moto_url}
    for key in ("streamArn", "streamName", "streams"):
        text = values.get(key.lower(), "")
        for arn, new in created.items():
            if arn.label != LATEST_LABEL:
                text = text.replace(str(arn), new)
        if text:
            replaced[key] = text
    return replaced


def run_daemon(argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start the daemon with these arguments, out of reach of the terminal's Ctrl-C.

    The caller passes signals on, so that the daemon sees each of them once.
    """
    command = [sys.executable, "-P", "-c", _DAEMON, str(Path(kcl_mld.__file__).parents[1]), *argv]
    return subprocess.Popen(  # noqa: S603 - our own package
        command, env=dict(env), stdin=subprocess.PIPE, start_new_session=True
    )


class Stopping:
    """Handles signals: interrupts this process, or passes them to the daemon."""

    def __init__(self) -> None:
        self._daemon: subprocess.Popen[bytes] | None = None

    def receive(self, number: int, _frame: object) -> None:
        """Handle a signal."""
        if self._daemon is None:
            raise KeyboardInterrupt
        self._daemon.send_signal(number)

    def run(self, daemon: subprocess.Popen[bytes]) -> int:
        """Wait for the daemon; its exit code, 128 + number when a signal ended it."""
        self._daemon = daemon
        try:
            code = daemon.wait()
        finally:
            self._daemon = None
            if daemon.stdin is not None:
                daemon.stdin.close()
        return code if code >= 0 else 128 - code


@contextmanager
def stop_on_signals() -> Iterator[Stopping]:
    """Handle SIGINT, SIGTERM, SIGHUP and SIGQUIT by a :class:`Stopping` until the block ends."""
    stopping = Stopping()
    before = [
        (number, signal.signal(number, stopping.receive))
        for number in _SIGNALS
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN  # nohup
    ]
    try:
        yield stopping
    except KeyboardInterrupt:
        raise click.Abort from None
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def put_file(
    put_lines: Callable[[BinaryIO, Callable[[int], object]], int],
    target: str,
    file: Path,
    what: str,
) -> None:
    """Put the lines of a file into a stream or a table, showing progress on stderr.

    Args:
        put_lines: gets the lines, and what to call with the bytes done; returns how many it put.
        what: one of them, as a word.
    """
    size = file.stat().st_size
    done = 0
    with (
        file.open("rb") as lines,
        click.progressbar(length=size, label=f"putting {file.name}", file=sys.stderr) as bar,
    ):

        def advance(consumed: int) -> None:
            nonlocal done
            bar.update(consumed - done)
            done = consumed

        count = put_lines(lines, advance)
    click.echo(f"{counted(count, what, f'{what}s')} put into {target}", err=True)


def print_endpoints(aws: EmbeddedAws, *, err: bool) -> None:
    """Print what a shell or a test needs to use the servers.

    Args:
        err: beside the log on stderr; else on stdout, to be evaluated by a shell.
    """
    for name, value in aws.environment.items():
        click.echo(f"export {name}={shlex.quote(value)}", err=err)
    click.echo(f"# pid {aws.pid}; Ctrl-C (or SIGTERM to {os.getpid()}) stops it", err=True)
    sys.stdout.flush()
