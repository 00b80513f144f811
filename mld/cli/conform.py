"""``kcl-mld conform``: test any child or daemon of the multilang protocol.

``conform child -- CMD…`` plays the daemon to a child; ``conform daemon -- CMD… {properties}`` runs
a daemon against the embedded AWS with scripted children. Exit code 1 if an item fails.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import tempfile
import time
from typing import TYPE_CHECKING, Any

import botocore.session
import click

from kcl_mld.children.adapters.kclpy_path import PYTHON_PATHS
from kcl_mld.children.adapters.program import StartPlace, examine, examine_child
from kcl_mld.children.rules.child_environment import ChildFacts, environment_of_child
from kcl_mld.cli.arguments import (
    Finite,
    SuggestingGroup,
    WholeNumber,
    require_writable,
    working_directory,
)
from kcl_mld.config.config import Kclpy
from kcl_mld.config.findings import Severity
from kcl_mld.errors import ConfigError
from kcl_mld_protocol.conform import daemon_cases
from kcl_mld_protocol.conform.__main__ import show_stderr
from kcl_mld_protocol.conform.child import MAX_TIMEOUT_S, SHARD, ChildKit
from kcl_mld_protocol.conform.daemon import DaemonKit
from kcl_mld_protocol.conform.report import baseline_names, load_baseline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kcl_mld.config.findings import Problem
    from kcl_mld.local.embedded import EmbeddedAws
    from kcl_mld_protocol.conform.report import Report

_ACTIVE_TIMEOUT_S = 30.0
#: More threads than there are cases wait in vain.
_MAX_JOBS = 1000
_PUT_LIMIT = 500


class EmbeddedCloud:
    """The embedded AWS in the shape that the kit wants (``kcl_mld_protocol.conform.daemon.Cloud``)."""

    def __init__(self, embedded: EmbeddedAws, kinesis_url: str | None = None) -> None:
        self._embedded = embedded
        self._kinesis_url = kinesis_url or embedded.kinesis_url
        self._kinesis = botocore.session.Session().create_client(
            "kinesis",
            region_name=embedded.region,
            endpoint_url=self._kinesis_url,
            aws_access_key_id="embedded",
            aws_secret_access_key="embedded",  # noqa: S106 (nothing checks it)
        )
        self._dynamodb = embedded.client("dynamodb")
        self._faults: list[dict[str, Any]] = []

    @property
    def kinesis_url(self) -> str:
        """Endpoint of Kinesis."""
        return self._kinesis_url

    @property
    def dynamodb_url(self) -> str:
        """Endpoint of DynamoDB."""
        return self._embedded.moto_url

    @property
    def environment(self) -> Mapping[str, str]:
        """Credentials and region, without endpoints: the properties file names them."""
        named = self._embedded.environment
        properties_name_these = {"AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL_DYNAMODB"}
        return {key: value for key, value in named.items() if key not in properties_name_these}

    def create_stream(self, stream: str, shards: int) -> None:
        """A stream, ACTIVE on return."""
        self._kinesis.create_stream(StreamName=stream, ShardCount=shards)
        self._wait_active(stream)

    def _wait_active(self, stream: str) -> None:
        deadline = time.monotonic() + _ACTIVE_TIMEOUT_S
        while time.monotonic() < deadline:
            summary = self._kinesis.describe_stream_summary(StreamName=stream)
            if summary["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE":
                return
            time.sleep(0.05)
        raise click.ClickException(f"stream {stream} does not become ACTIVE")

    def put(self, stream: str, records: Sequence[tuple[bytes, str]]) -> None:
        """Put records in order."""
        for start in range(0, len(records), _PUT_LIMIT):
            part = records[start : start + _PUT_LIMIT]
            entries = [{"Data": data, "PartitionKey": key} for data, key in part]
            self._kinesis.put_records(StreamName=stream, Records=entries)

    def split(self, stream: str, shard_id: str) -> None:
        """Split a shard in the middle."""
        shards = self._kinesis.list_shards(StreamName=stream)["Shards"]
        hash_keys = next(s["HashKeyRange"] for s in shards if s["ShardId"] == shard_id)
        middle = (int(hash_keys["StartingHashKey"]) + int(hash_keys["EndingHashKey"])) // 2
        self._kinesis.split_shard(
            StreamName=stream, ShardToSplit=shard_id, NewStartingHashKey=str(middle)
        )
        self._wait_active(stream)

    def lease_rows(self, table: str) -> list[dict[str, Any]]:
        """Items with a checkpoint, as plain values."""
        with contextlib.suppress(self._dynamodb.exceptions.ResourceNotFoundException):
            items = self._dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
            plain = [{name: _plain(value) for name, value in item.items()} for item in items]
            return [item for item in plain if "checkpoint" in item]
        return []

    def change_lease(self, table: str, lease_key: str, values: Mapping[str, str | int]) -> None:
        """Overwrite attributes of one item."""
        self._dynamodb.update_item(
            TableName=table,
            Key={"leaseKey": {"S": lease_key}},
            AttributeUpdates={
                name: {"Action": "PUT", "Value": _typed(value)} for name, value in values.items()
            },
        )

    def consumers(self, stream: str) -> int:
        """How many fan-out consumers the stream has."""
        summary = self._kinesis.describe_stream_summary(StreamName=stream)
        arn = summary["StreamDescriptionSummary"]["StreamARN"]
        return len(self._kinesis.list_stream_consumers(StreamARN=arn)["Consumers"])

    def fail(self, operation: str, contains: str, code: str | None) -> None:
        """Spoil matching requests of DynamoDB."""
        rule: dict[str, Any] = {
            "service": "dynamodb",
            "operation": operation,
            "contains": contains,
            "code": code,
            "drop": code is None,
        }
        self._faults.append(rule)
        self._embedded.control(faults=self._faults)

    def heal(self) -> None:
        """Spoil nothing any more."""
        self._faults.clear()
        self._embedded.control(faults=[])


def _plain(value: Mapping[str, Any]) -> Any:
    kind, content = next(iter(value.items()))
    return int(content) if kind == "N" and "." not in content else content


def _typed(value: str | int) -> dict[str, str]:
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


@click.group(cls=SuggestingGroup)
def conform() -> None:
    """Test an implementation of the multilang protocol, item by item."""


_TIMEOUT = Finite(0, MAX_TIMEOUT_S, least_open=True)
_COMMAND = click.argument("command", nargs=-1, required=True, type=click.Path())


def _json_place(
    _context: click.Context, _option: click.Parameter, path: pathlib.Path | None
) -> pathlib.Path | None:
    """A run of minutes is not to end without its report."""
    if path is not None:
        require_writable(str(path), "--json")
    return path


_JSON = click.option(
    "--json", "json_path", type=click.Path(path_type=pathlib.Path), callback=_json_place
)


@conform.command("child")
@click.option("--implementation", type=click.Choice(["generic", "kclpy"]), default="generic")
@click.option("--timeout-s", type=_TIMEOUT, default=60.0, show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Show the child's stderr as it comes.")
@_JSON
@_COMMAND
@click.pass_context
def child(
    context: click.Context,
    implementation: Any,
    timeout_s: float,
    verbose: bool,
    json_path: pathlib.Path | None,
    command: tuple[str, ...],
) -> None:
    """Test the child CMD by playing the daemon.

    CMD is found and started like executableName, with the environment of a child of the daemon,
    except KCL_MLD_CAPABILITIES: the rules are those of every daemon. If an item fails, the last
    lines of its stderr are shown.
    """
    _require_program(examine_child, command)
    on_stderr = show_stderr if verbose else None
    kit = ChildKit(command, implementation, timeout_s, _environment(), on_stderr)
    context.exit(_show(kit.run(_progress), json_path))


@conform.command("daemon")
@click.option(
    "--implementation", type=click.Choice(["java", "java-2", "kcl-mld"]), default="kcl-mld"
)
@click.option(
    "--jobs", type=WholeNumber(1, _MAX_JOBS), default=1, help="Number of cases to run at a time."
)
@click.option(
    "--kinesis",
    "kinesis_url",
    help="URL of another Kinesis instead of the embedded one; Java needs HTTP/2 and CBOR.",
)
@click.option("--only", multiple=True, help="Run the cases whose name contains TEXT; repeatable.")
@click.option(
    "--baseline",
    "baseline_name",
    help=f"Verdicts to compare with: {', '.join(baseline_names())}, or the path of a --json report.",
)
@_JSON
@_COMMAND
@click.pass_context
def daemon(
    context: click.Context,
    implementation: Any,
    jobs: int,
    kinesis_url: str | None,
    only: tuple[str, ...],
    baseline_name: str | None,
    json_path: pathlib.Path | None,
    command: tuple[str, ...],
) -> None:
    """Test the daemon CMD, one of whose arguments contains {properties}."""
    from kcl_mld.local.embedded import EmbeddedAws

    cases = [
        case for case in daemon_cases.ALL if not only or any(part in case.__name__ for part in only)
    ]
    if not cases:
        raise click.UsageError("no case has such a name")
    try:
        baseline = load_baseline(baseline_name) if baseline_name else None
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    _require_program(examine, command)
    with tempfile.TemporaryDirectory() as folder, EmbeddedAws() as embedded:
        cloud = EmbeddedCloud(embedded, kinesis_url)
        try:
            kit = DaemonKit(command, implementation, cloud, pathlib.Path(folder), jobs)
        except ValueError as error:
            raise click.UsageError(str(error)) from error
        report = kit.run(cases, _progress, baseline=baseline, whole=not only)
        context.exit(_show(report, json_path))


def _require_program(
    check: Callable[[Sequence[str], StartPlace], Iterable[Problem]], command: Sequence[str]
) -> None:
    """Check that a program can be started.

    Raises:
        ConfigError: it cannot be.
    """
    for problem in check(command, StartPlace(os.environ, working_directory())):
        text = f"{problem.text} ({problem.suggestion})" if problem.suggestion else problem.text
        if problem.severity is Severity.ERROR:
            raise ConfigError(text)
        click.echo(f"{problem.severity}: {text}", err=True)


def _environment() -> dict[str, str]:
    facts = ChildFacts(
        shard_id=SHARD,
        lease_key=SHARD,
        stream_name="conformance",
        application_name="conformance",
        worker_id="conformance",
        pid=os.getpid(),
    )
    return environment_of_child(os.environ, facts.variables(), PYTHON_PATHS[Kclpy.AUTO])


def _progress(name: str) -> None:
    click.echo(name, err=True)


def _show(report: Report, json_path: pathlib.Path | None) -> int:
    click.echo(report.text(), nl=False)
    if json_path is not None:
        json_path.write_text(report.json(), "utf-8")
    return report.exit_status
