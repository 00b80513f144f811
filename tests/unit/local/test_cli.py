"""``kcl-mld local``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore.session
import pytest
from click.testing import CliRunner

from kcl_mld.cli import local as cli
from kcl_mld.config.properties import parse
from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROPERTIES = """executableName = app.py
applicationName = app
streamName = words
AwsCredentialsProvider = ProfileCredentialsProvider|prod
regionName = eu-west-1
"""


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    path = tmp_path / "app.properties"
    path.write_text(PROPERTIES)
    return path


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "words.jsonl"
    lines = (json.dumps({"partitionKey": str(n), "data": "word"}) for n in range(700))
    path.write_text("\n".join(lines))
    return path


class Daemon:
    """In the place of the daemon: looks at what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, exit_code: int = 0) -> None:
        self.properties: dict[str, str] = {}
        self.arguments: list[str] = []
        self.env: dict[str, str] = {}
        self.records = 0
        self.consumers: list[str] = []
        self.shards = 0
        self._exit_code = exit_code
        self.stdin = None
        monkeypatch.setattr(cli, "run_daemon", self)

    def __call__(self, argv: Sequence[str], env: Mapping[str, str]) -> Daemon:
        assert argv[0] == "--properties"
        data = Path(argv[1]).read_bytes()
        self.properties = {entry.key: entry.value for entry in parse(data)}
        self.shown_as = argv[argv.index("--shown-as") + 1]
        self.arguments = list(argv[4:])
        self.env = dict(env)
        client = botocore.session.Session().create_client(
            "kinesis",
            region_name=self.properties["regionName"],
            endpoint_url=self.properties["kinesisEndpoint"],
            aws_access_key_id=env["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=env["AWS_SECRET_ACCESS_KEY"],
        )
        summary = client.describe_stream_summary(StreamName="words")["StreamDescriptionSummary"]
        listed = client.list_stream_consumers(StreamARN=summary["StreamARN"])["Consumers"]
        self.consumers = [consumer["ConsumerARN"] for consumer in listed]
        for shard in client.list_shards(StreamName="words")["Shards"]:
            self.shards += 1
            iterator = client.get_shard_iterator(
                StreamName="words",
                ShardId=shard["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )["ShardIterator"]
            self.records += len(client.get_records(ShardIterator=iterator)["Records"])
        return self

    def wait(self) -> int:
        return self._exit_code


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli.local, arguments, standalone_mode=False)


def test_the_daemon_runs_against_the_embedded_stream(
    monkeypatch: pytest.MonkeyPatch, properties: Path, records: Path
) -> None:
    daemon = Daemon(monkeypatch)
    result = run(
        *("--properties", str(properties), "--put", str(records), "--shards", "3"),
        *("--", "--http", "127.0.0.1:0"),
    )
    assert result.exception is None
    assert result.return_value == 0
    assert (daemon.shards, daemon.records) == (3, 700)
    assert daemon.arguments == ["--http", "127.0.0.1:0"]
    assert daemon.properties["AwsCredentialsProvider"] == "DefaultCredentialsProvider"
    assert daemon.properties["regionName"] == "eu-west-1"
    assert daemon.properties["executableName"] == "app.py"
    assert daemon.shown_as == str(properties)
    for endpoint in ("kinesisEndpoint", "dynamoDBEndpoint", "cloudWatchClient.endpointOverride"):
        assert daemon.properties[endpoint].startswith("http://127.0.0.1:")
    assert daemon.properties["initialPositionInStream"] == "TRIM_HORIZON"
    assert "TRIM_HORIZON is used" in result.stderr
    assert "700 records put" in result.stderr
    assert (
        f"export AWS_ENDPOINT_URL_KINESIS={daemon.properties['kinesisEndpoint']}" in result.stderr
    )
    assert result.stdout == ""


CONSUMER = "arn:aws:kinesis:eu-west-1:210987654321:stream/words/consumer/app:1700000000"


def test_a_consumer_that_the_file_names_is_there(
    monkeypatch: pytest.MonkeyPatch, properties: Path
) -> None:
    properties.write_text(f"{PROPERTIES}fanoutConfig.consumerArn = {CONSUMER}\n")
    daemon = Daemon(monkeypatch)
    assert run("--properties", str(properties)).exception is None
    assert daemon.properties["fanoutConfig.consumerArn"] == CONSUMER
    assert daemon.consumers == [CONSUMER]


def test_a_consumer_of_another_stream_is_refused(properties: Path) -> None:
    other = CONSUMER.replace("words", "others")
    properties.write_text(f"{PROPERTIES}fanoutConfig.consumerArn = {other}\n")
    result = run("--properties", str(properties))
    assert isinstance(result.exception, ConfigError)
    assert other in str(result.exception)


@pytest.mark.parametrize(("ended", "shown"), [(0, 0), (4, 4), (-15, 143)])
def test_the_daemons_exit_code_is_passed_on(
    monkeypatch: pytest.MonkeyPatch, properties: Path, ended: int, shown: int
) -> None:
    daemon = Daemon(monkeypatch, ended)
    assert run("--properties", str(properties), "--limits").return_value == shown
    assert "initialPositionInStream" not in daemon.properties


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("--properties", "FILE", "--stream", "s"), "--stream"),
        (("--put", "FILE"), "--put"),
        (("--", "--http", "x"), "properties file"),
        (("--properties", "nowhere.properties"), "nowhere.properties"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    properties: Path, arguments: tuple[str, ...], why: str
) -> None:
    result = run(*(str(properties) if word == "FILE" else word for word in arguments))
    assert why in str(result.exception)


def test_the_daemon_is_ours_wherever_the_user_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mld").mkdir()
    (tmp_path / "mld" / "__init__.py").write_text("raise SystemExit(99)")
    (tmp_path / "protocol.py").write_text("raise SystemExit(98)")
    monkeypatch.chdir(tmp_path)
    for argument, code in (("--version", 0), ("missing.properties", 2)):
        with cli.run_daemon([argument], {}) as daemon:
            assert daemon.wait(120) == code


def test_the_daemon_ends_with_whoever_started_it(tmp_path: Path) -> None:
    fifo = tmp_path / "slow.properties"  # reading it waits for a writer
    os.mkfifo(fifo)
    with cli.run_daemon([str(fifo)], {}) as daemon:
        assert daemon.stdin is not None
        daemon.stdin.close()
        assert daemon.wait(120) == -signal.SIGTERM


@pytest.mark.parametrize("name", ["two words", "n" * 129])
def test_a_name_that_no_stream_can_have_is_refused(name: str) -> None:
    result = run("--stream", name)
    assert isinstance(result.exception, ConfigError)
    assert name in str(result.exception)


@pytest.mark.usefixtures("hangup")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_server_alone_runs_until_it_is_stopped(number: int) -> None:
    command = [sys.executable, "-m", "kcl_mld", "local", "--stream", "mine", "--shards", "5"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        exported: dict[str, str] = {}
        while "AWS_EC2_METADATA_DISABLED" not in exported:
            word, _, assignment = process.stdout.readline().strip().partition(" ")
            assert word == "export"
            name, _, value = assignment.partition("=")
            exported[name] = value
        client = botocore.session.Session().create_client(
            "kinesis",
            region_name=exported["AWS_REGION"],
            endpoint_url=exported["AWS_ENDPOINT_URL_KINESIS"],
            aws_access_key_id=exported["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=exported["AWS_SECRET_ACCESS_KEY"],
        )
        assert len(client.list_shards(StreamName="mine")["Shards"]) == 5
        process.send_signal(number)
        assert process.wait(120) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT])
def test_a_signal_goes_on_to_the_daemon_once(number: signal.Signals) -> None:
    with cli.stop_on_signals() as stopping:
        assert signal.getsignal(number) == stopping.receive
        code = f"import signal, sys; signal.signal({number:d}, lambda *a: sys.exit(7))\n"
        code += "print(flush=True); signal.pause()"
        daemon = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert daemon.stdout is not None
        daemon.stdout.readline()
        stopping._daemon = daemon
        signal.raise_signal(number)
        assert stopping.run(daemon) == 7
        daemon.stdout.close()


def test_the_daemon_gets_what_is_set_outside_the_file_but_for_the_servers(
    monkeypatch: pytest.MonkeyPatch, properties: Path
) -> None:
    monkeypatch.setenv("KCL_MLD_SET", "kinesisEndpoint=http://nowhere:1\ntableName=t")
    monkeypatch.setenv("WORDS", "words")
    properties.write_text(PROPERTIES.replace("= words", "= none"))
    daemon = Daemon(monkeypatch)
    settings = ("--set", "streamName=${WORDS}", "--set", "regionName=eu-central-1")
    assert run("--properties", str(properties), *settings, "--expand-env").exception is None
    assert daemon.shards == 2
    assert daemon.properties["regionName"] == "eu-central-1"
    assert daemon.env["KCL_MLD_SET"] == "tableName=t\nstreamName=${WORDS}"
    assert daemon.env["KCL_MLD_EXPAND_ENV"] == "true"


ARN = "arn:aws:dynamodb:eu-west-1:210987654321:table/{}/stream/2026-11-28T07:09:24.310"


class TableDaemon:
    """In the place of the daemon: reads the tables of its file, in the order of their names."""

    stdin = None

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.properties: dict[str, str] = {}
        self.keys: list[list[str]] = []
        monkeypatch.setattr(cli, "run_daemon", self)

    def __call__(self, argv: Sequence[str], _env: Mapping[str, str]) -> TableDaemon:
        data = Path(argv[1]).read_bytes()
        self.properties = {entry.key: entry.value for entry in parse(data)}
        client = botocore.session.Session().create_client(
            "dynamodbstreams",
            region_name=self.properties["regionName"],
            endpoint_url=self.properties["kinesisEndpoint"],
            aws_access_key_id="x",
            aws_secret_access_key="x",
        )
        for one in client.list_streams()["Streams"]:
            stream = client.describe_stream(StreamArn=one["StreamArn"])["StreamDescription"]
            answer = client.get_shard_iterator(
                StreamArn=one["StreamArn"],
                ShardId=stream["Shards"][0]["ShardId"],
                ShardIteratorType="TRIM_HORIZON",
            )
            records = client.get_records(ShardIterator=answer["ShardIterator"])["Records"]
            self.keys.append([record["dynamodb"]["Keys"]["id"]["S"] for record in records])
        return self

    def wait(self) -> int:
        return 0


@pytest.fixture
def items(tmp_path: Path) -> Path:
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a"}\n{"id": "b"}\n')
    return path


@pytest.mark.parametrize("key", ["streamArn", "streamName"])
def test_the_table_of_a_file_is_created_and_its_stream_is_read(
    monkeypatch: pytest.MonkeyPatch, properties: Path, items: Path, key: str
) -> None:
    lines = PROPERTIES.replace("streamName = words", f"{key} = {ARN.format('Orders')}")
    properties.write_text(lines)
    daemon = TableDaemon(monkeypatch)
    result = run("--properties", str(properties), "--put", str(items), "--table-key", "id")
    assert result.exception is None
    assert daemon.keys == [["a", "b"]]
    created = daemon.properties[key]
    assert created != ARN.format("Orders")
    assert created.startswith(ARN.format("Orders").partition("/stream/")[0])
    assert daemon.properties["kinesisEndpoint"] == daemon.properties["dynamoDBEndpoint"]
    assert daemon.properties["initialPositionInStream"] == "TRIM_HORIZON"
    assert "2 items put into Orders" in result.stderr


def test_tables_of_a_list_are_created(
    monkeypatch: pytest.MonkeyPatch, properties: Path, items: Path
) -> None:
    clicks = ARN.format("Clicks").partition("/stream/")[0]
    text = f"multiStream = true\nstreams = {ARN.format('Orders')}, \\\n  {clicks}"
    properties.write_text(PROPERTIES.replace("streamName = words", text))
    daemon = TableDaemon(monkeypatch)
    result = run("--properties", str(properties), "--put", str(items), "--table-key", "id")
    assert result.exception is None
    assert daemon.keys == [["a", "b"]] * 2
    orders, last = daemon.properties["streams"].split(", ")
    assert orders != ARN.format("Orders")
    assert last == clicks


def test_items_that_do_not_fit_the_key_are_refused(properties: Path, items: Path) -> None:
    properties.write_text(PROPERTIES.replace("words", ARN.format("Orders")))
    result = run("--properties", str(properties), "--put", str(items))
    assert isinstance(result.exception, ConfigError)
    assert f"{items}:1: " in str(result.exception)


def test_a_key_that_no_table_can_have_is_refused(properties: Path) -> None:
    properties.write_text(PROPERTIES.replace("words", ARN.format("Orders")))
    result = run("--properties", str(properties), "--table-key", "")
    assert isinstance(result.exception, ConfigError)
    assert "table Orders: " in str(result.exception)
