"""``kcl-mld explain`` and ``kcl-mld wait`` over looks that are made up."""

import json
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import kcl_mld.cli.explain
from kcl_mld.aws import clients
from kcl_mld.aws.credentials import AwsSessions
from kcl_mld.cli import dispatch
from kcl_mld.cli.fleet_access import pause_with_progress, table_region
from kcl_mld.cli.loading import read_config
from kcl_mld.errors import NotFound
from kcl_mld.observe.model.fleet_snapshot import FleetSnapshot
from kcl_mld.observe.model.verdict import Verdict
from tests.fakes.lease_world import lease
from tests.generated_docs import ROOT, verdicts
from tests.sim.loop import run

HEALTHY, DEAD = lease(0, lease_owner="blue-1"), lease(1, lease_owner="red\x1b")


class Table:
    """Each look shows what time it is, and the counter of the healthy lease moves."""

    def __init__(self, *rows):
        self.rows = rows
        self.fresh = []

    async def look(self, *, fresh):
        if not self.rows:
            raise NotFound("Scan", "ResourceNotFoundException")
        self.fresh.append(fresh)
        at = kcl_mld.cli.explain.asyncio.get_running_loop().time()
        count = len(self.fresh)
        rows = [replace(row, lease_counter=count) if row is HEALTHY else row for row in self.rows]
        return FleetSnapshot(
            began_at=at, at=at, wall_s=0.0, leases={row.lease_key: row for row in rows}
        )


@pytest.fixture
def opened(monkeypatch):
    asked = []

    def open_table(*rows):
        table = Table(*rows)

        @contextmanager
        def opening(config, *, tips, urls=()):
            assert config.leases.table_name == "app"
            asked.append(tips)
            yield table

        monkeypatch.setattr(kcl_mld.cli.explain, "open_fleet", opening)
        monkeypatch.setattr(kcl_mld.cli.explain, "open_fleet", opening)
        table.tips = asked
        return table

    return open_table


def test_what_is_well_has_a_line_and_what_is_not_a_paragraph(properties, opened, capsys):
    opened(HEALTHY, DEAD)
    assert dispatch(["explain", properties]) == 7
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("app: 2 shards, worst: warning (2 looks, ")
    assert "WARNING OWNER_SILENT shardId-000000000001" in lines
    assert "  Owner red\\x1b, checkpoint TRIM_HORIZON." in lines
    assert any(line.startswith("  Do: see whether a worker runs") for line in lines)
    assert "  See docs/verdicts.md#owner_silent" in lines
    assert lines[-1].split()[:4] == ["info", "NO_PROGRESS", HEALTHY.lease_key, "blue-1"]
    assert max(map(len, lines[:-1])) <= 100


def test_shards_of_one_cause_share_a_paragraph(properties, opened, capsys):
    dead = [lease(number, lease_owner="dead") for number in range(12)]
    opened(HEALTHY, *dead[1:], lease(20, lease_owner="other"))
    assert dispatch(["explain", properties]) == 7
    lines = capsys.readouterr().out.splitlines()
    assert "WARNING OWNER_SILENT 11 shards" in lines
    assert "WARNING OWNER_SILENT shardId-000000000020" in lines
    assert "shardId-000000000010, and 1 more." in " ".join(line.strip() for line in lines)
    assert sum(line.startswith("  Why") for line in lines) == 2


def test_each_verdict_is_explained_without_a_file(capsys):
    for verdict in Verdict:
        assert dispatch(["explain", "--verdict", verdict.lower()]) == 0
        printed = capsys.readouterr().out
        assert printed.startswith(f"{verdict}\n")
        assert len(printed.splitlines()) > 2
        assert "](" not in printed
    assert dispatch(["explain", "--verdict", "FINE"]) == 2


def test_what_the_command_prints_of_verdicts_is_what_the_page_says():
    assert (ROOT / "mld/cli/verdicts.md").read_text("utf-8") == verdicts()


def test_all_is_well(properties, opened, capsys):
    table = opened(HEALTHY)
    assert dispatch(["explain", properties, "--tip"]) == 0
    assert capsys.readouterr().out.startswith("app: 1 shard, worst: info")
    assert table.tips == [True]
    assert table.fresh == [True, True]


def test_longer_looks_list_shards_at_the_first_and_the_last(properties, opened, capsys):
    table = opened(HEALTHY)
    assert dispatch(["explain", "-p", properties, "--for", "0.5"]) == 0
    assert len(table.fresh) > 3
    assert (table.fresh[0], table.fresh[1], table.fresh[-1]) == (True, False, True)


def test_one_look(properties, opened, capsys):
    table = opened(HEALTHY, DEAD)
    assert dispatch(["explain", properties, "--once"]) == 0
    out = capsys.readouterr().out
    assert "worst: info (1 look)" in out
    assert "One look can't tell who lives" in out
    assert len(table.fresh) == 1
    assert dispatch(["explain", properties, "--once", "--for", "3"]) == 2
    assert "exclude each other" in capsys.readouterr().err


def test_json_has_all_that_is_said(properties, opened, capsys):
    opened(DEAD)
    assert dispatch(["explain", properties, "-o", "json"]) == 7
    told = json.loads(capsys.readouterr().out)
    (shard,) = told.pop("shards")
    assert told.pop("span_s") >= 0.1
    assert told == {
        "version": 1,
        "table": "app",
        "severity": "warning",
        "needs_a_person": True,
        "looks": 2,
        "facts": [
            "Fleet: works as 2.x",
            "The table has no lag of red\x1b: --tip asks Kinesis for it",
            "Gaps and trends take longer looks: --for 0.3",
        ],
        "fleet": [],
    }
    assert shard.pop("since_s") >= 0.1
    assert "red" in shard.pop("cause")
    assert shard.pop("do")
    assert shard == {
        "subject": DEAD.lease_key,
        "verdict": "OWNER_SILENT",
        "severity": "warning",
        "link": "docs/verdicts.md#owner_silent",
        "stream": None,
        "shard": DEAD.shard_id,
        "owner": "red\x1b",
        "checkpoint": "TRIM_HORIZON",
        "behind_s": None,
        "behind_age_s": None,
        "lag_s": None,
    }


def test_shards_that_are_named_are_the_only_ones(properties, opened, capsys):
    opened(HEALTHY, DEAD)
    assert dispatch(["explain", properties, HEALTHY.shard_id]) == 0
    assert DEAD.shard_id not in capsys.readouterr().out
    assert dispatch(["explain", properties, "shardId-9"]) == 2
    assert "shardId-9 is neither" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("lines", "region"),
    [
        ("kinesisClient.region=eu-west-1", "eu-west-1"),
        ("kinesisClient.region=eu-west-1\nregionName=us-east-2", "us-east-2"),
        ("regionName=us-east-2\ndynamoDbClient.region=ap-south-1", "ap-south-1"),
    ],
)
def test_the_table_is_sought_where_the_client_seeks_it(properties, lines, region, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    path = Path(properties)
    path.write_text(path.read_text().replace("regionName=us-east-1", lines))
    config = read_config(properties)
    session = AwsSessions(config.aws.kinesis_region or config.stream.region)
    client = clients.make_client(
        session.of(config.aws.kinesis_credentials), clients.dynamodb_settings(config)
    )
    assert table_region(config) == client.meta.region_name == region


def test_no_table(properties, opened, capsys):
    opened()
    assert dispatch(["explain", properties]) == 4
    assert "the lease table app does not exist in us-east-1; it is " in capsys.readouterr().err


def test_waiting_ends_when_it_is_so(properties, opened, capsys):
    table = opened(HEALTHY)
    assert dispatch(["wait", properties, "--for", "all-owned"]) == 0
    assert capsys.readouterr().out == ""
    assert table.tips == [False]
    assert len(table.fresh) == 2


def test_waiting_gives_up_and_says_what_is_missing(properties, opened, capsys):
    table = opened(HEALTHY, DEAD)
    assert dispatch(["wait", properties, "--for=caught-up", "--timeout", "0.3"]) == 7
    out = capsys.readouterr().out
    assert DEAD.lease_key in out
    assert HEALTHY.lease_key in out  # nobody told how far it is behind
    assert table.tips == [True]


def test_waiting_for_a_table_that_nobody_makes(properties, opened, capsys):
    opened()
    assert dispatch(["wait", properties, "--for=all-owned", "--timeout", "0.3"]) == 4
    assert "the lease table app does not exist" in capsys.readouterr().err


def test_on_a_terminal_it_says_how_long_it_takes(monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    run(pause_with_progress(2.5, 3, 2.5))
    shown = capsys.readouterr().err.split("\r")
    assert [text.split(":")[-1].strip() for text in shown if "lease" in text] == [
        "2 s left",
        "2 s left",
        "0 s left",
    ]
