"""The clean-up finds what appears late, tells each deletion once, and waits for workers to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.acceptance.account import Account
from kcl_mld.acceptance.budget import Budget
from kcl_mld.acceptance.clean_up import CleanUp
from kcl_mld.acceptance.journal import Journal, JournalledRun, is_open
from kcl_mld.acceptance.options import JOURNAL, PREFIX, Names, Options, Stage
from kcl_mld.acceptance.resources import Resources
from kcl_mld.acceptance.rules.resource import (
    STAYS_IN_S3,
    TAG,
    Found,
    JournalEntry,
    Resource,
    ResourceKind,
)
from kcl_mld.errors import AwsError, Denied, NotFound, ServiceError

if TYPE_CHECKING:
    from pathlib import Path

RUN = "0123456789"
NAMES = Names(prefix=PREFIX, run_id=RUN)
STREAM = Resource(ResourceKind.STREAM, NAMES.stream)
LEASES = Resource(ResourceKind.LEASE_TABLE, NAMES.polling_application)
OBJECTS = Resource(ResourceKind.OBJECTS, f"bucket/{NAMES.run}/")
FOUND = {STREAM: Found(101, {TAG: RUN}), LEASES: Found(101, key="leaseKey"), OBJECTS: Found(101)}


class FakeAccount:
    """Its resources; each look takes a second.

    Args:
        appears_s: of each resource, when it is there.
        refusals: of each resource, how often its deletion is refused.
    """

    def __init__(self, appears_s: dict[Resource, float], **refusals: int) -> None:
        self.appears_s = appears_s
        self.refusals = refusals
        self.now_s = 0.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def find(self, resource: Resource) -> Found | None:
        self.now_s += 1
        is_there = self.now_s >= self.appears_s.get(resource, float("inf"))
        return FOUND[resource] if is_there else None

    def delete(self, resource: Resource) -> None:
        if self.refusals.get(resource.kind.name, 0):
            self.refusals[resource.kind.name] -= 1
            raise ServiceError("Delete", "ResourceInUseException", "")
        del self.appears_s[resource]


def cleaned(account: Any, *resources: Resource) -> tuple[CleanUp, tuple[Any, ...], list[str]]:
    """A clean-up that was run: what is left, and what was said."""
    said: list[str] = []
    entries = [JournalEntry(one, 100) for one in resources]
    times = {"clock": account.clock, "sleep": account.sleep}
    clean_up = CleanUp(account, entries, RUN, 60, said.append, **times)
    return clean_up, clean_up.run(), said


def test_a_table_that_appears_after_its_look_is_deleted() -> None:
    account = FakeAccount({STREAM: 0, LEASES: 3})
    clean_up, left, said = cleaned(account, STREAM, LEASES)
    assert not left
    assert not account.appears_s
    assert clean_up.deleted == 2
    assert said == [f"Deleting {STREAM}", f"Deleting {LEASES}"]


def test_a_deletion_that_is_refused_for_minutes_is_told_once() -> None:
    account = FakeAccount({LEASES: 0}, LEASE_TABLE=100)
    clean_up, left, said = cleaned(account, LEASES)
    assert account.refusals == {"LEASE_TABLE": 0}
    assert not left
    assert clean_up.deleted == 1
    assert said == [f"Deleting {LEASES}"]


def test_what_stays_in_a_bucket_is_told() -> None:
    _, _, said = cleaned(FakeAccount({}), OBJECTS)
    assert said == [f"Below {OBJECTS.name} {STAYS_IN_S3}"]


class Answers:
    """Clients whose calls have these answers, one after the other; an exception is raised."""

    region = "eu-west-1"

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = answers

    def call(self, _service: str, operation: str, **_: Any) -> Any:
        answer = self.answers[operation].pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize(("code", "error"), [("AccessDenied", Denied), ("InternalError", AwsError)])
def test_an_object_that_s3_does_not_delete_is_an_error(code: str, error: type[Exception]) -> None:
    refused = {"Key": "k", "Code": code, "Message": "no"}
    clients: Any = Answers(
        list_objects_v2=[{"Contents": [{"Key": "k"}]}], delete_objects=[{"Errors": [refused]}]
    )
    account = Account(clients, "123456789012")
    with pytest.raises(error, match=code):
        account.delete(OBJECTS)


def test_a_table_that_is_not_known_at_once_is_waited_for(tmp_path: Path) -> None:
    source = Resource(ResourceKind.TABLE, NAMES.source_table)
    table = {"LatestStreamArn": "arn", "CreationDateTime": None, "KeySchema": []}
    active = {"Table": {"TableStatus": "ACTIVE"}}
    unknown = NotFound("DescribeTable", "ResourceNotFoundException")
    clients: Any = Answers(
        create_stream=[{}],
        describe_stream_summary=[
            NotFound("DescribeStreamSummary", "ResourceNotFoundException"),
            {"StreamDescriptionSummary": {"StreamStatus": "ACTIVE"}},
            unknown,
        ],
        create_table=[{"TableDescription": table}],
        describe_table=[unknown, active, unknown],
    )
    run = Options(
        region="eu-west-1",
        account="123456789012",
        names=NAMES,
        limit_s=60,
        limit_usd=1,
        stages=frozenset({Stage.TABLE_STREAM}),
        directory=tmp_path,
    )
    budget = Budget(60, 1, 0, sleep=lambda _: None, clock=iter(range(1000)).__next__)
    account = Account(clients, run.account)
    head = JournalledRun(
        account=run.account, region=run.region, names=NAMES, limit_s=60, endpoints={}
    )
    with Journal(run.journal, head) as journal:
        Resources(run, clients, account, budget, print).create(journal)
    assert source.name in run.journal.read_text()
    assert clients.answers["describe_table"] == []


KILLED = """
import os, pathlib, sys, time
from kcl_mld.acceptance.fleet import RunFleet
from kcl_mld.acceptance.journal import Journal, JournalledRun
from kcl_mld.acceptance.options import JOURNAL, Names
from kcl_mld.acceptance.recording import RunRecording

folder = pathlib.Path(sys.argv[1])
names = Names(prefix=sys.argv[2], run_id=sys.argv[3])
run = JournalledRun(account="1" * 12, region="r", names=names, limit_s=9, endpoints={})
journal = Journal(folder / JOURNAL, run)
fleet = RunFleet("app", "records", {}, folder, None, RunRecording(folder / "recording.jsonl"))
worker = fleet.start("w1", ("sh", "-c", "trap : TERM; echo there; while :; do sleep 0.1; done"))
while "there" not in worker.log.read_text():
    time.sleep(0.05)
print(worker.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_run_goes_on_until_the_workers_of_a_killed_command_have_ended(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED, str(tmp_path), PREFIX, RUN]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    assert done.returncode == -9
    try:
        assert is_open(tmp_path / JOURNAL)
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)
    until_s = time.monotonic() + 60
    while is_open(tmp_path / JOURNAL):
        assert time.monotonic() < until_s
        time.sleep(0.05)
