"""Plan, journal, budget, pace, policy, and what may be deleted."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.acceptance.account import Account
from kcl_mld.acceptance.budget import Budget, BudgetExhausted
from kcl_mld.acceptance.clients import Clients, Pace
from kcl_mld.acceptance.journal import Journal, JournalledRun, is_open, read_journal
from kcl_mld.acceptance.options import AWS, PREFIX, Names, Options, Stage, new_run_id
from kcl_mld.acceptance.permissions import denied_actions, not_tried
from kcl_mld.acceptance.rules import plan
from kcl_mld.acceptance.rules.plan import applications, costs, plan_lines, planned, services
from kcl_mld.acceptance.rules.policy import acceptance_policy
from kcl_mld.acceptance.rules.resource import (
    TAG,
    Found,
    JournalEntry,
    Resource,
    ResourceKind,
    why_foreign,
)
from kcl_mld.errors import ConfigError, Denied
from kcl_mld.ops.rules.iam_policy import policy_document

if TYPE_CHECKING:
    from pathlib import Path

RUN = "0123456789"
NAMES = Names(prefix=PREFIX, run_id=RUN)
ALL = frozenset(Stage)
STREAM = Resource(ResourceKind.STREAM, NAMES.stream)
LEASES = Resource(ResourceKind.LEASE_TABLE, NAMES.polling_application)
DATABASE = Resource(ResourceKind.GLUE_DATABASE, NAMES.glue_database)
HEAD = JournalledRun(
    account="123456789012",
    region="eu-west-1",
    names=NAMES,
    limit_s=1800,
    endpoints={"kinesis": AWS},
)


class Clock:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0
        self.slept: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now_s += seconds


# --- names, plan and costs


def test_run_ids_are_random() -> None:
    assert len({new_run_id() for _ in range(100)}) == 100


def test_every_name_begins_with_prefix_and_run_id() -> None:
    found = planned(NAMES, ALL, "bucket")
    assert {one.kind for one in found} == set(ResourceKind)
    begins = tuple(f"{before}{PREFIX}-{RUN}" for before in ("", "bucket/"))
    assert all(one.name.replace("_", "-").startswith(begins) for one in found)
    assert len(set(found)) == len(found)


def test_what_no_stage_needs_is_not_created() -> None:
    found = planned(NAMES, {Stage.POLLING}, None)
    assert found == (STREAM, LEASES)
    assert list(applications(NAMES, {Stage.POLLING})) == [NAMES.polling_application]


def test_what_stays_costs_by_the_day() -> None:
    lines = costs(NAMES, {Stage.POLLING})
    assert plan.usd_per_day_if_killed(lines) == pytest.approx(4 * 0.015 * 24)
    with_consumer = costs(NAMES, {Stage.POLLING, Stage.FAN_OUT})
    assert plan.usd_per_day_if_killed(with_consumer) == pytest.approx(2 * 4 * 0.015 * 24)
    assert plan.usd_per_hour(lines) > plan.usd_per_day_if_killed(lines) / 24


def test_records_cost_by_units_of_25_kib_and_by_bytes() -> None:
    assert plan.usd_of_records(1_000_000, 1_000_000) == pytest.approx(0.014 + 0.013 / 1000)
    large = plan.usd_of_records(1, 100 * 1024 * 1024)
    assert large == pytest.approx(4096 * 0.014e-6 + 0.1048576 * 0.013)
    assert plan.usd_of_writes(1_000_000) == pytest.approx(0.625)


def test_people_are_shown_account_names_and_costs(tmp_path: Path) -> None:
    text = "\n".join(plan_lines(options(tmp_path), "arn:aws:iam::123456789012:user/me"))
    for shown in (
        "Account 123456789012, region eu-west-1, as arn:aws:iam::123456789012:user/me",
        f"stream {NAMES.stream}",
        f"consumer {NAMES.fan_out_application}",
        "$2.88 a day",
        "It costs about",
        "for 30 minutes and the clean-up, in up to 2 hours of the clock",
        "can't be deleted",
    ):
        assert shown in text


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (None, AWS),
        ("https://vpce-0a-1b.kinesis.eu-west-1.vpce.amazonaws.com", AWS),
        ("http://localhost:4566", "localhost:4566"),
        ("http://localstack:4566", "localstack:4566"),
        ("https://kinesis.amazonaws.com.example.org", "kinesis.amazonaws.com.example.org"),
    ],
)
def test_other_servers_are_told_from_aws(
    url: str | None, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("", "_KINESIS", "_DYNAMODB"):
        monkeypatch.delenv(f"AWS_ENDPOINT_URL{name}", raising=False)
    if url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", url)
    endpoints = Clients("eu-west-1", Pace(0)).endpoints(("kinesis", "dynamodb"))
    assert endpoints == {"kinesis": AWS, "dynamodb": place}


def test_people_are_shown_that_it_is_not_aws(tmp_path: Path) -> None:
    shown = list(plan_lines(options(tmp_path, endpoints={"kinesis": "localhost:4566"}), "arn"))
    assert "This is not AWS, and proves nothing about it: kinesis at localhost:4566" in shown
    real = list(plan_lines(options(tmp_path, endpoints={"kinesis": AWS}), "arn"))
    assert "not AWS" not in "".join(real)


def test_each_hour_of_the_clock_that_a_run_may_touch_is_counted(tmp_path: Path) -> None:
    assert [plan.billed_hours(minutes * 60) for minutes in (30, 60, 61)] == [2, 2, 3]
    run = options(tmp_path, stages=frozenset({Stage.POLLING}))
    metrics = 120 * plan.USD_METRIC_HOUR
    hourly = plan.usd_per_hour(costs(NAMES, run.stages))
    assert hourly > 4 * plan.USD_SHARD_HOUR + metrics
    assert plan.usd_at_most(run) == pytest.approx(2 * hourly)
    shown = list(plan_lines(run, "arn"))
    assert any(f"${2 * hourly:.2f} for 30 minutes" in line for line in shown)


def options(folder: Path, **changes: Any) -> Options:
    """A run."""
    made = Options(
        region="eu-west-1",
        account="123456789012",
        names=NAMES,
        limit_s=1800,
        limit_usd=1.0,
        stages=ALL,
        directory=folder,
    )
    return replace(made, **changes)


# --- what may be deleted


def test_what_a_run_created_may_be_deleted() -> None:
    tags = {TAG: RUN}
    assert why_foreign(JournalEntry(STREAM, 100, 101), Found(101.4, tags), RUN, 60) is None
    assert why_foreign(JournalEntry(STREAM, 100), Found(160, tags), RUN, 60) is None
    leases = Found(150, key="leaseKey")
    assert why_foreign(JournalEntry(LEASES, 100), leases, RUN, 60) is None


@pytest.mark.parametrize(
    ("entry", "found", "why"),
    [
        (
            JournalEntry(Resource(ResourceKind.STREAM, "orders"), 100),
            Found(100, {TAG: RUN}),
            "does not contain the run id",
        ),
        (JournalEntry(STREAM, 100, 101), Found(103, {TAG: RUN}), "another time"),
        (JournalEntry(STREAM, 1000), Found(600, {TAG: RUN}), "older"),
        (JournalEntry(STREAM, 100), Found(100 + 60 + 3700, {TAG: RUN}), "after the run"),
        (JournalEntry(STREAM, 100), Found(100), "no tag"),
        (JournalEntry(STREAM, 100), Found(100, {TAG: "9876543210"}), "no tag"),
        (JournalEntry(DATABASE, 100), Found(100), "no tag"),
        (JournalEntry(LEASES, 100), Found(100, key="id"), "no table of the KCL"),
    ],
)
def test_what_is_not_of_the_run_stays(entry: JournalEntry, found: Found, why: str) -> None:
    told = why_foreign(entry, found, RUN, 60)
    assert told is not None
    assert why in told


# --- the journal


def test_a_journal_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEAD, wall=lambda: 100.0) as journal:
        journal.announce(STREAM)
        journal.created(STREAM, 101.5)
        journal.announce(LEASES)
        assert is_open(path)
    assert not is_open(path)
    assert path.stat().st_mode & 0o777 == 0o600
    entries = (JournalEntry(STREAM, 100.0, 101.5), JournalEntry(LEASES, 100.0))
    assert read_journal(path) == (HEAD, entries)


def test_a_journal_is_on_the_disk_before_the_call_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[bytes] = []
    path = tmp_path / "journal.jsonl"
    sync = os.fsync

    def spy(fd: int) -> None:
        sync(fd)
        synced.append(path.read_bytes())

    monkeypatch.setattr(os, "fsync", spy)
    with Journal(path, HEAD) as journal:
        journal.announce(STREAM)
    assert NAMES.stream.encode() in synced[-1]
    assert NAMES.stream.encode() not in synced[-2]


def test_a_journal_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    code = (
        "import os, pathlib, sys\n"
        "from kcl_mld.acceptance.journal import Journal, JournalledRun\n"
        "from kcl_mld.acceptance.options import Names\n"
        "from kcl_mld.acceptance.rules.resource import ResourceKind, Resource\n"
        "names = Names(prefix=sys.argv[2], run_id=sys.argv[3])\n"
        "run = JournalledRun(account='1' * 12, region='r', names=names, limit_s=9, endpoints={})\n"
        "Journal(pathlib.Path(sys.argv[1]), run).announce(Resource(ResourceKind.STREAM, names.stream))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, path, PREFIX, RUN], check=False)
    assert done.returncode == -9
    assert not is_open(path)
    _, (entry,) = read_journal(path)
    assert entry.resource == STREAM


def test_a_line_that_is_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path, HEAD) as journal:
        journal.announce(STREAM)
        journal.announce(LEASES)
    path.write_bytes(path.read_bytes()[:-9])
    assert [one.resource for one in read_journal(path)[1]] == [STREAM]


def test_a_journal_is_never_written_twice(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("mine")
    with pytest.raises(ConfigError):
        Journal(path, HEAD)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no JSON\n",
        "[]\n",
        json.dumps({"what": "run", "version": 2, "prefix": PREFIX, "run_id": RUN}) + "\n",
        json.dumps({"what": "run", "version": 1, "prefix": PREFIX, "run_id": ""}) + "\n",
        json.dumps({"what": "run", "version": 1, "prefix": "", "run_id": RUN}) + "\n",
    ],
)
def test_another_file_is_no_journal(tmp_path: Path, text: str) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match="no journal"):
        read_journal(path)


# --- the budget and the pace


def budget(clock: Clock, limit_s: float = 60, limit_usd: float = 1, per_hour: float = 0) -> Budget:
    """A budget on a clock of the test."""
    return Budget(limit_s, limit_usd, per_hour, clock=clock.clock, sleep=clock.sleep)


def test_time_runs_out() -> None:
    clock = Clock()
    limits = budget(clock, 60)
    limits.sleep(59)
    with pytest.raises(BudgetExhausted, match="limit of time"):
        limits.sleep(10)
    assert clock.now_s == 1060
    assert limits.left_s == 0


def test_suspended_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    suspended_s = 0.0

    def clock_gettime(clock: int) -> float:
        return 1000.0 + suspended_s * (clock == running)

    running = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    monkeypatch.setattr(time, "clock_gettime", clock_gettime)
    limits = Budget(60, 1, 0)
    limits.check()
    suspended_s = 61.0
    with pytest.raises(BudgetExhausted, match="limit of time"):
        limits.check()


def test_a_call_that_hangs_ends_within_two_minutes() -> None:
    config = Clients("eu-west-1", Pace(0)).control("kinesis").meta.config
    attempts = config.retries["total_max_attempts"]
    assert attempts * (config.connect_timeout + config.read_timeout) <= 120


def test_money_runs_out_by_the_hour() -> None:
    clock = Clock()
    limits = budget(clock, 7200, 2.5, per_hour=1.0)
    with pytest.raises(BudgetExhausted, match=r"limit of money is reached: \$2.50"):
        limits.sleep(7000)
    assert clock.now_s == 1000 + 3600.5  # the third hour has begun


def test_money_runs_out_by_the_record() -> None:
    limits = budget(Clock(), 60, 0.02)
    limits.note_put(1_000_000, 1_000)
    limits.check()
    limits.note_table_write(10_000)
    with pytest.raises(BudgetExhausted, match="limit of money"):
        limits.check()
    assert limits.spent_usd == pytest.approx(0.014 + 0.00625, rel=1e-3)


def test_an_interruption_ends_a_sleep() -> None:
    clock = Clock()
    limits = budget(clock)

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        limits.interrupt("interrupted by SIGINT")

    interrupted = Budget(60, 1, 0, clock=clock.clock, sleep=sleep)
    limits = interrupted
    with pytest.raises(BudgetExhausted, match="SIGINT"):
        interrupted.sleep(30)
    assert len(clock.slept) == 1


def test_one_call_goes_in_each_second() -> None:
    clock = Clock()
    pace = Pace(1.0, clock=clock.clock, sleep=clock.sleep)
    went = []
    for _ in range(4):
        pace.wait()
        went.append(clock.now_s)
    assert went == [1000, 1001, 1002, 1003]
    clock.now_s += 100  # a pause is no credit
    pace.wait()
    pace.wait()
    assert clock.now_s == 1104


# --- the policy


def test_without_a_bucket_the_policy_has_no_storage() -> None:
    document = str(policy_document(acceptance_policy("eu-west-1", "123456789012", PREFIX, None)))
    assert "kinesis:CreateStream" in document
    assert "s3:" not in document
    assert "glue:" not in document


def test_only_services_of_the_stages_are_called() -> None:
    always = {"sts", "kinesis", "dynamodb", "cloudwatch"}
    assert set(services([Stage.POLLING])) == always
    assert set(services([Stage.TABLE_STREAM])) == always | {"dynamodbstreams"}
    assert set(services([Stage.SPARK])) == always | {"s3", "glue"}


def test_the_policy_is_limited_to_the_prefix() -> None:
    document = policy_document(acceptance_policy("eu-west-1", "123456789012", PREFIX, "bucket"))
    unlimited = {}
    for statement in document["Statement"]:
        condition = statement.get("Condition", {})
        for resource in statement["Resource"]:
            if f"{PREFIX}-*" not in (resource + str(condition)).replace("_", "-"):
                unlimited[statement["Sid"]] = statement["Action"]
    # None of them reads or changes data, or has names that a policy could limit.
    assert unlimited.pop("Catalog")  # the catalog itself, beside databases of the prefix
    assert unlimited == {
        "Quota": ["kinesis:DescribeLimits"],
        "FindTableStreams": ["dynamodb:ListStreams"],
        "ReadMetrics": ["cloudwatch:GetMetricStatistics"],
    }
    (streams,) = (one for one in document["Statement"] if one["Sid"] == "Streams")
    ours = f"arn:aws:kinesis:eu-west-1:123456789012:stream/{NAMES.stream}"
    assert any(fnmatch.fnmatch(ours, pattern) for pattern in streams["Resource"])
    other = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders"
    assert not any(fnmatch.fnmatch(other, pattern) for pattern in streams["Resource"])


def test_a_database_may_be_deleted_with_what_it_may_contain() -> None:
    statements = acceptance_policy("eu-west-1", "123456789012", PREFIX, "bucket")
    (catalog,) = (one for one in statements if one.sid == "Catalog")
    for kind in ("table", "userDefinedFunction"):
        ours = f"arn:aws:glue:eu-west-1:123456789012:{kind}/{NAMES.glue_database}/anything"
        assert any(fnmatch.fnmatch(ours, pattern) for pattern in catalog.resources)


class RefusingClients:
    """No call is allowed."""

    region = "eu-west-1"

    def call(self, *_: str, **__: Any) -> dict[str, Any]:
        raise Denied("Any", "AccessDenied")


def test_each_action_of_the_policy_is_tried_or_named(tmp_path: Path) -> None:
    clients: Any = RefusingClients()
    run = options(tmp_path, bucket="bucket")
    told = denied_actions(clients, Account(clients, run.account), run)
    tried = {one.removesuffix(" (AccessDenied)") for one in told}
    statements = acceptance_policy(run.region, run.account, PREFIX, "bucket")
    allowed = {action for one in statements for action in one.actions}
    assert tried | set(not_tried(run)) == allowed
