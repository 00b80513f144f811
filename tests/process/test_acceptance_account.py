"""``kcl-mld acceptance``: what it refuses, and what it deletes after a run that went wrong."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.acceptance.account import Account
from kcl_mld.acceptance.budget import Budget
from kcl_mld.acceptance.clients import Clients, Pace
from kcl_mld.acceptance.options import PREFIX, Names, Options, Stage, new_run_id
from kcl_mld.acceptance.resources import Resources
from kcl_mld.acceptance.rules.resource import TAG
from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kcl_mld.local.embedded import EmbeddedAws

pytestmark = pytest.mark.process

ACCOUNT = "123456789012"
#: The endpoints of AWS.
REAL = {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}
FAST = ("--account", ACCOUNT, "--yes", "--control-interval", "0")


def command(*arguments: str) -> list[str]:
    """A command line of ours."""
    return [sys.executable, "-m", "kcl_mld", "acceptance", *arguments]


def typed(
    aws: EmbeddedAws, folder: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The command, to its end, with nobody at its terminal."""
    return subprocess.run(
        command(*arguments),
        cwd=folder,
        env=aws.environment_for_child() | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def calls(aws: EmbeddedAws, *operations: str) -> int:
    """How often the server was asked for these."""
    counted = aws.control()["calls"]
    return sum(counted.get(operation, 0) for operation in operations)


CREATIONS = ("CreateStream", "kinesis.CreateStream", "CreateTable", "dynamodb.CreateTable")


# --- refusals


def test_another_account_is_refused_before_anything_is_created(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    before = calls(aws, *CREATIONS)
    done = typed(aws, tmp_path, "--account", "210987654321", "--yes")
    assert done.returncode == 2, done.stderr
    assert f"account {ACCOUNT}, not 210987654321" in done.stderr
    assert calls(aws, *CREATIONS) == before
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "no terminal"),
        (("--account", ACCOUNT), "no terminal"),
        (("--yes",), "--yes needs --account"),
        ((*FAST, "--minutes", "5", "--hours", "1"), "either --minutes or --hours"),
        ((*FAST, "--prefix", "Mine!"), "Mine!"),
        ((*FAST, "--stage", "rollovers"), "needs --hours 1"),
        ((*FAST, "--stage", "java"), "needs --java and --jars"),
        ((*FAST, "--stage", "kill", "--stage", "fan-out"), "--stage kill needs --stage polling"),
        ((*FAST, "--stage", "metrics"), "--stage metrics needs --stage polling or --stage fan-out"),
        ((*FAST, "--java", sys.executable), "go together"),
        ((*FAST, "--max-cost", "0.001"), "more than --max-cost 0.00"),
    ],
)
def test_what_was_not_agreed_to_is_not_begun(
    aws: EmbeddedAws, tmp_path: Path, arguments: tuple[str, ...], told: str
) -> None:
    before = calls(aws, *CREATIONS)
    done = typed(aws, tmp_path, *arguments)
    assert done.returncode == 2, done.stderr
    assert told in done.stderr
    assert calls(aws, *CREATIONS) == before
    assert not list(tmp_path.iterdir())


def test_a_pace_below_a_second_is_for_local_servers(aws: EmbeddedAws, tmp_path: Path) -> None:
    done = typed(aws, tmp_path, *FAST, **REAL)
    assert done.returncode == 2, done.stderr
    assert "is for local servers" in done.stderr


def test_a_mixture_of_aws_and_other_servers_is_refused(aws: EmbeddedAws, tmp_path: Path) -> None:
    before = calls(aws, *CREATIONS)
    real = {"AWS_ENDPOINT_URL_KINESIS": "https://kinesis.us-east-1.amazonaws.com"}
    done = typed(aws, tmp_path, *FAST, **real)
    assert done.returncode == 2, done.stderr
    assert re.search(r"dynamodb is at 127\.0\.0\.1:\d+, .*but AWS has kinesis", done.stderr)
    assert calls(aws, *CREATIONS) == before
    assert not list(tmp_path.iterdir())


def test_missing_permissions_are_told_before_anything_is_created(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    before = calls(aws, *CREATIONS)
    aws.control(
        faults=[
            {"operation": one, "code": "AccessDeniedException"}
            for one in ("DeleteTable", "DeregisterStreamConsumer", "DescribeLimits")
        ]
    )
    done = typed(aws, tmp_path, *FAST)
    assert done.returncode == 2, done.stderr
    actions = (
        "dynamodb:DeleteTable",
        "kinesis:DeregisterStreamConsumer",
        "kinesis:DescribeLimits",
    )
    for action in actions:
        assert f"{action} (AccessDeniedException)" in done.stderr
    assert "kinesis:DeleteStream (" not in done.stderr
    assert "kcl-mld iam --role acceptance" in done.stderr
    assert calls(aws, *CREATIONS) == before
    assert not list(tmp_path.iterdir())


def test_a_bucket_that_is_not_there_is_told_before_anything_is_created(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    before = calls(aws, *CREATIONS)
    done = typed(aws, tmp_path, *FAST, "--bucket", "not-there")
    assert done.returncode == 2, done.stderr
    assert "there is no bucket not-there" in done.stderr
    assert calls(aws, *CREATIONS) == before


@pytest.fixture
def environment(aws: EmbeddedAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of this process talk to the embedded AWS."""
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)


def resources_of(folder: Path) -> Resources:
    """Of a run of its own, with every stage."""
    clients = Clients("us-east-1", Pace(0))
    account = Account(clients, ACCOUNT)
    options = Options(
        region="us-east-1",
        account=ACCOUNT,
        names=Names(prefix=PREFIX, run_id=new_run_id()),
        limit_s=600,
        limit_usd=1.0,
        stages=frozenset(Stage) - {Stage.SPARK},
        directory=folder,
    )
    return Resources(options, clients, account, Budget(600, 1.0, 0.0), lambda _: None)


@pytest.mark.usefixtures("environment")
def test_what_exists_already_is_refused(aws: EmbeddedAws, tmp_path: Path) -> None:
    resources = resources_of(tmp_path)
    resources.refuse_what_exists()
    create_lease_table(aws, resources.polling_application)
    with pytest.raises(ConfigError, match=f"{resources.polling_application} exists already"):
        resources.refuse_what_exists()


@pytest.mark.usefixtures("environment")
def test_a_quota_that_others_have_used_up_is_refused(tmp_path: Path) -> None:
    resources = resources_of(tmp_path)
    resources.refuse_without_quota()

    def describe_limits(_service: str, _operation: str) -> dict[str, Any]:
        return {"ShardLimit": 20, "OpenShardCount": 17}

    resources.call = describe_limits  # type: ignore[assignment]
    with pytest.raises(ConfigError, match="3 shards left"):
        resources.refuse_without_quota()


def create_lease_table(aws: EmbeddedAws, name: str, key: str = "leaseKey") -> None:
    """As a worker does."""
    aws.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


# --- what is deleted


@contextmanager
def started(aws: EmbeddedAws, folder: Path, until: str) -> Iterator[subprocess.Popen[str]]:
    """A run that has said ``until``; killed in the end."""
    process = subprocess.Popen(
        command(*FAST, "--directory", "run", "--stage", "polling", "--stage", "table-stream"),
        cwd=folder,
        env=aws.environment_for_child(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    said = []
    try:
        for line in process.stderr:
            said.append(line)
            if until in line:
                break
        else:
            pytest.fail("".join(said))
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def journalled(folder: Path) -> list[dict[str, Any]]:
    """The lines of the run's journal."""
    lines = (folder / "run" / "journal.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def names_of(aws: EmbeddedAws, run_id: str) -> set[str]:
    """All streams and tables of a run that there are."""
    streams = aws.client("kinesis").list_streams()["StreamNames"]
    pages = aws.client("dynamodb").get_paginator("list_tables").paginate()
    tables = [name for page in pages for name in page["TableNames"]]
    return {name for name in (*streams, *tables) if run_id in name}


def cleaned_up(aws: EmbeddedAws, folder: Path) -> subprocess.CompletedProcess[str]:
    """The clean-up of the run."""
    return typed(aws, folder, *FAST, "--clean-up", "run/journal.jsonl")


def test_what_is_about_to_be_created_is_in_the_journal(aws: EmbeddedAws, tmp_path: Path) -> None:
    aws.control(faults=[{"operation": "CreateStream", "delay_s": 60}])
    with started(aws, tmp_path, "Creating stream") as process:
        wait_for(lambda: len(journalled(tmp_path)) == 2)
        process.kill()
        process.wait()
    head, line = journalled(tmp_path)
    assert (head["what"], line["what"], line["kind"]) == ("run", "creates", "stream")
    assert not names_of(aws, head["run_id"])


def wait_for(is_so: Any) -> None:
    """Wait, however long it takes."""
    until_s = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < until_s
        time.sleep(0.05)


@pytest.fixture
def killed(aws: EmbeddedAws, tmp_path: Path) -> str:
    """The id of a run whose command was killed when its stream was there."""
    with started(aws, tmp_path, "Creating table") as process:
        process.kill()
        process.wait()
    run_id = journalled(tmp_path)[0]["run_id"]
    assert names_of(aws, run_id) >= {f"{PREFIX}-{run_id}-records"}
    return str(run_id)


def test_a_run_that_was_killed_is_cleaned_up(aws: EmbeddedAws, tmp_path: Path, killed: str) -> None:
    done = cleaned_up(aws, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"Deleting stream {PREFIX}-{killed}-records" in done.stderr
    assert not names_of(aws, killed)
    again = cleaned_up(aws, tmp_path)
    assert again.returncode == 0, again.stderr
    assert "0 of the 2 names in the journal exist" in again.stderr


def test_a_run_whose_terminal_is_gone_is_cleaned_up_and_writes_down_what_it_says(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    with started(aws, tmp_path, "Creating table") as process:
        head = journalled(tmp_path)[0]
        assert process.stderr is not None
        assert process.stdout is not None
        process.stderr.close()
        process.stdout.close()
        process.send_signal(signal.SIGHUP)
        assert process.wait() == 1
    assert not names_of(aws, head["run_id"])
    said = (tmp_path / "run" / "run.log").read_text()
    journal = tmp_path / "run" / "journal.jsonl"
    first = "If this is killed, delete what it created: kcl-mld acceptance --clean-up"
    assert f"{first} {journal}" in said.splitlines()[0]
    assert f"Deleting stream {PREFIX}-{head['run_id']}-records" in said
    assert "The run ends early: interrupted by SIGHUP" in said


def test_a_clean_up_elsewhere_than_the_run_is_refused(
    aws: EmbeddedAws, tmp_path: Path, killed: str
) -> None:
    options = ("--account", ACCOUNT, "--yes", "--clean-up", "run/journal.jsonl")
    done = typed(aws, tmp_path, *options, **REAL)
    assert done.returncode == 2, done.stderr
    assert "that run called" in done.stderr
    assert names_of(aws, killed)
    assert cleaned_up(aws, tmp_path).returncode == 0
    assert not names_of(aws, killed)


@pytest.mark.proof
def test_a_clean_up_in_another_account_is_refused(
    aws: EmbeddedAws, tmp_path: Path, killed: str
) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    text = path.read_text()
    path.write_text(text.replace(ACCOUNT, "210987654321"))
    options = ("--account", "210987654321", "--yes", "--control-interval", "0")
    done = typed(aws, tmp_path, *options, "--clean-up", str(path))
    assert done.returncode == 2, done.stderr
    assert names_of(aws, killed)
    path.write_text(text)
    done = typed(aws, tmp_path, *options, "--clean-up", str(path))
    assert done.returncode == 2, done.stderr
    assert names_of(aws, killed)
    assert cleaned_up(aws, tmp_path).returncode == 0


def test_what_others_created_under_the_same_names_stays(
    aws: EmbeddedAws, tmp_path: Path, killed: str
) -> None:
    kinesis, name = aws.client("kinesis"), f"{PREFIX}-{killed}-records"
    table = f"{PREFIX}-{killed}-polling"
    kinesis.delete_stream(StreamName=name)
    wait_for(lambda: name not in names_of(aws, killed))
    time.sleep(1.1)  # creation times that differ by less are taken for one
    kinesis.create_stream(StreamName=name, ShardCount=1, Tags={TAG: killed})
    create_lease_table(aws, table, key="id")
    # The run was killed before it could say so: the worker was about to create that table.
    line = {"at_s": time.time(), "what": "creates", "kind": "lease table", "name": table}
    with (tmp_path / "run" / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({**line, "owner": ""}) + "\n")
    done = cleaned_up(aws, tmp_path)
    assert done.returncode == 8, done.stderr
    assert f"Left: stream {name}: it was created at another time" in done.stderr
    assert f"Left: lease table {table}: it is no table of the KCL" in done.stderr
    assert "--clean-up run/journal.jsonl" in done.stderr
    assert names_of(aws, killed) == {name, table}


@pytest.mark.proof
def test_a_stream_without_the_tag_stays(aws: EmbeddedAws, tmp_path: Path, killed: str) -> None:
    kinesis, name = aws.client("kinesis"), f"{PREFIX}-{killed}-records"
    kinesis.remove_tags_from_stream(StreamName=name, TagKeys=[TAG])
    done = cleaned_up(aws, tmp_path)
    assert done.returncode == 8, done.stderr
    assert f"Left: stream {name}: it has no tag {TAG} = {killed}" in done.stderr
    assert names_of(aws, killed) == {name}


@pytest.mark.proof
def test_a_deletion_that_is_denied_keeps_nothing_else(
    aws: EmbeddedAws, tmp_path: Path, killed: str
) -> None:
    create_lease_table(aws, f"{PREFIX}-{killed}-polling")
    line = {"what": "creates", "kind": "lease table", "name": f"{PREFIX}-{killed}-polling"}
    with (tmp_path / "run" / "journal.jsonl").open("a") as journal:
        journal.write(json.dumps({"at_s": time.time(), **line, "owner": ""}) + "\n")
    aws.control(faults=[{"operation": "DeleteStream", "code": "AccessDeniedException"}])
    done = cleaned_up(aws, tmp_path)
    assert done.returncode == 8, done.stderr
    assert "AccessDeniedException" in done.stderr
    assert names_of(aws, killed) == {f"{PREFIX}-{killed}-records"}
    aws.control(faults=[])
    assert cleaned_up(aws, tmp_path).returncode == 0
    assert not names_of(aws, killed)


@pytest.mark.proof
def test_a_run_that_goes_on_is_not_cleaned_up_and_a_signal_ends_it_in_order(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    with started(aws, tmp_path, "polling: begins") as process:
        refused = cleaned_up(aws, tmp_path)
        assert refused.returncode == 2
        assert "still going on" in refused.stderr
        run_id = journalled(tmp_path)[0]["run_id"]
        assert names_of(aws, run_id)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait() == 1, said
    assert "The run ends early: interrupted by SIGTERM" in said
    assert not names_of(aws, run_id)
    report = (tmp_path / "run" / "report.json").read_text()
    assert ACCOUNT not in report
    assert json.loads(report)


@pytest.mark.proof
def test_a_second_signal_ends_the_clean_up_and_says_how_to_go_on(
    aws: EmbeddedAws, tmp_path: Path
) -> None:
    with started(aws, tmp_path, "Creating table") as process:
        aws.control(faults=[{"operation": "DeleteStream", "code": "ResourceInUseException"}])
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        for line in process.stderr:
            if "Deleting stream" in line:
                break
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait() == 130, said
    assert re.search(r"To delete it: kcl-mld acceptance --clean-up \S+journal.jsonl", said)
    aws.control(faults=[])
    assert cleaned_up(aws, tmp_path).returncode == 0
    assert not names_of(aws, journalled(tmp_path)[0]["run_id"])
