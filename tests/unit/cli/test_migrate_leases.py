"""``kcl-mld leases migrate``."""

import base64
import json
from datetime import UTC, datetime

import pytest

import kcl_mld.cli.migrate_leases as command
from kcl_mld.cli import dispatch
from kcl_mld.config.stream import Stream
from kcl_mld.errors import (
    ConditionFailed,
    Denied,
    MoveRefused,
    NotFound,
    ResourceMissing,
    Throttled,
    UnknownOutcome,
    WorkersAlive,
)
from tests.fakes.clock import FakeClock
from tests.fakes.dynamodb import FakeDynamoDb
from tests.fakes.lease_rows import FULL, LEADER, Rows, multi, single
from tests.fakes.lease_world import TABLE, World

PROPERTIES = """executableName=app.py
applicationName=app
streamName=orders
regionName=us-east-1
failoverTimeMillis=100
AwsCredentialsProvider=EnvironmentVariableCredentialsProvider
"""
CREATED = datetime.fromtimestamp(1_700_000_000.25, UTC)
ORDERS = "123456789012:orders:1700000000"
OTHER = Stream("other", account="123456789012", epoch=5)
TABLE_ROWS = (single(0), single(3, **FULL), LEADER)
MOVED_ROWS = (multi(0), multi(3, **FULL), LEADER)
WRITES = ("PutItem", "DeleteItem", "UpdateItem")


class Killed(BaseException):
    """The process ends here."""


class FakeKinesis:
    """Knows one stream."""

    def __init__(self, *_):
        pass

    async def describe_stream_summary(self, **request):
        if request["StreamName"] != "orders":
            raise NotFound("DescribeStreamSummary", "ResourceNotFoundException")
        return {
            "StreamDescriptionSummary": {
                "StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/orders",
                "StreamCreationTimestamp": CREATED,
            }
        }


class Aws:
    """A table, and what befalls the requests to it."""

    def __init__(self):
        self.world = World(clock=FakeClock())
        self.world.create_table()
        self.before = self.after = lambda operation, request: None
        self.operations = []

    def fill(self, *items):
        for item in items:
            self.world.put_item(item)

    def items(self):
        return Rows(self.world.model.items(TABLE)).items

    def dynamodb(self, *_):
        async def before(_service, operation, request):
            self.operations.append(operation)
            self.before(operation, request)

        async def after(_service, operation, request):
            self.after(operation, request)

        return FakeDynamoDb(self.world.model, before=before, after=after)

    def writes(self):
        return [name for name in self.operations if name in WRITES]


@pytest.fixture
def aws(monkeypatch):
    aws = Aws()
    monkeypatch.setattr(command, "BotocoreDynamoDb", aws.dynamodb)
    monkeypatch.setattr(command, "open_kinesis", lambda *_: FakeKinesis())
    monkeypatch.setattr(command.clients, "make_client", lambda *_: None)  # 0.1 s each
    return aws


@pytest.fixture
def migrate(tmp_path, monkeypatch, aws):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setattr("kcl_mld.ops.lease_migration.FIRST_PAUSE_S", 0.001)
    monkeypatch.setattr("kcl_mld.ops.lease_migration.LONGEST_PAUSE_S", 0.001)
    path = tmp_path / "app.properties"
    path.write_text(PROPERTIES)

    def run(to="multi-stream", *arguments):
        return dispatch(["leases", "migrate", str(path), "--to", to, *arguments])

    run.path = path
    return run


def test_without_apply_the_plan_is_printed_and_nothing_written(migrate, aws, capsys):
    aws.fill(*TABLE_ROWS)
    assert migrate() == 0
    assert capsys.readouterr().out.splitlines() == [
        "app: 2 rows of 123456789012:orders:1700000000 to move to multi-stream keys",
        "",
        f"  copy        {ORDERS}:shardId-000000000000  from shardId-000000000000  at 100",
        f"  copy        {ORDERS}:shardId-000000000003  from shardId-000000000003  at 495903/7",
        "  delete      shardId-000000000000",
        "  delete      shardId-000000000003",
        "  make valid  123456789012:orders:1700000000:shardId-000000000000",
        "  make valid  123456789012:orders:1700000000:shardId-000000000003",
        "",
        "Left as they are: Leader",
        "",
        "Nothing was written. Stop every worker, then run this with --apply.",
    ]
    assert aws.writes() == []
    assert aws.items() == Rows(TABLE_ROWS).items


def test_a_table_that_only_the_region_of_kinesis_places_is_found(migrate, aws, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    migrate.path.write_text(PROPERTIES.replace("regionName", "kinesisClient.region"))
    aws.fill(*TABLE_ROWS)
    assert migrate() == 0


def test_a_plan_as_json_has_every_item_that_would_be_written(migrate, aws, capsys):
    aws.fill(*TABLE_ROWS)
    assert migrate("multi-stream", "--json") == 0
    plan = json.loads(capsys.readouterr().out)
    assert {name: plan[name] for name in ("table", "to", "stream", "rows", "written", "left")} == {
        "table": "app",
        "to": "multi-stream",
        "stream": "123456789012:orders:1700000000",
        "rows": 2,
        "written": False,
        "left": ["Leader"],
    }
    assert [step["do"] for step in plan["steps"]] == ["copy"] * 2 + ["delete"] * 2 + [
        "make valid"
    ] * 2
    state = plan["steps"][-1]["item"].pop("pendingCheckpointState")
    assert base64.b64decode(state["B"]) == b"\x00\xff"
    assert plan["steps"][2]["item"] is None
    whole = Rows([plan["steps"][-1]["item"]]).items
    expected = multi(3, **FULL)
    del expected["pendingCheckpointState"]
    assert whole == Rows([expected]).items


def test_apply_moves_the_table_and_the_way_back_restores_it(migrate, aws, capsys):
    aws.fill(*TABLE_ROWS)
    assert migrate("multi-stream", "--apply") == 0
    out, err = capsys.readouterr()
    assert aws.items() == Rows(MOVED_ROWS).items
    assert out.startswith("app: 2 rows of 123456789012:orders:1700000000 moved to multi-stream")
    assert "Nothing was written" not in out
    assert err.splitlines() == [
        "Looking for live workers: 0.1 s left",
        "copied: 2 of 2 rows",
        "deleted: 2 of 2 rows",
        "made valid: 2 of 2 rows",
    ]
    assert migrate("multi-stream", "--apply") == 0
    assert capsys.readouterr().out == "app: nothing to do, all rows have multi-stream keys\n"
    assert migrate("single-stream", "--apply", "--json") == 0
    assert aws.items() == Rows(TABLE_ROWS).items
    assert json.loads(capsys.readouterr().out)["written"]


@pytest.mark.parametrize("to", ["multi-stream", "single-stream"])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 7))
def test_killed_at_any_write_it_goes_on_or_back(migrate, aws, to, moment, number):
    start, end = (TABLE_ROWS, MOVED_ROWS) if to == "multi-stream" else (MOVED_ROWS, TABLE_ROWS)
    back = "single-stream" if to == "multi-stream" else "multi-stream"
    for direction, result in ((to, end), (back, start)):
        aws.world.model.call("DeleteTable", {"TableName": TABLE})
        aws.world.create_table()
        aws.fill(*start)
        aws.operations.clear()

        def kill(operation, _request):
            if operation in WRITES and len(aws.writes()) == number:
                raise Killed

        setattr(aws, moment, kill)
        with pytest.raises(Killed):
            migrate(to, "--apply")
        setattr(aws, moment, lambda *_: None)
        assert len(aws.writes()) == number
        assert migrate(direction, "--apply") == 0
        assert aws.items() == Rows(result).items


def test_a_worker_that_is_alive_is_named_and_nothing_is_written(migrate, aws, capsys):
    aws.fill(single(0, leaseOwner={"S": "blue-1"}), single(1))

    def renew(operation, _request):
        if operation == "Scan":
            counter = int(aws.world.row("shardId-000000000000")["leaseCounter"]["N"])
            aws.world.change("shardId-000000000000", leaseCounter=counter + 1)

    aws.after = renew
    assert migrate("multi-stream", "--apply") == WorkersAlive.exit_code == 6
    assert (
        "table app is in use: worker blue-1 wrote row shardId-000000000000: its counter went"
        in (capsys.readouterr().err)
    )
    assert aws.writes() == []


def test_many_signs_of_life_are_counted(migrate, aws, capsys):
    aws.fill(*(single(number) for number in range(7)))

    def renew(operation, _request):
        if operation == "Scan" and aws.operations.count("Scan") == 2:
            for number in range(7):
                key = single(number)["leaseKey"]["S"]
                aws.world.change(key, leaseCounter=50, leaseOwner="w")

    aws.after = renew
    assert migrate("multi-stream", "--apply") == 6
    assert "and 2 more rows changed" in capsys.readouterr().err


def test_a_row_that_a_worker_writes_after_all_is_left_alone_and_moved_next_time(
    migrate, aws, capsys
):
    aws.fill(single(0), single(1))

    def take(operation, _request):
        if operation == "DeleteItem" and aws.operations.count(operation) == 1:
            aws.world.change(
                "shardId-000000000000", leaseCounter=9, checkpoint="700", leaseOwner="late"
            )

    aws.before = take
    assert migrate("multi-stream", "--apply") == 6
    assert (
        "row shardId-000000000000 was written meanwhile by worker late" in capsys.readouterr().err
    )
    assert aws.world.row("shardId-000000000000")["checkpoint"] == {"S": "700"}
    assert migrate("multi-stream", "--apply") == 0
    moved = aws.world.row(multi(0)["leaseKey"]["S"])
    assert (moved["checkpoint"], moved["leaseCounter"]) == ({"S": "700"}, {"N": "9"})
    assert not aws.world.row("shardId-000000000000")


def test_a_row_that_vanishes_meanwhile_is_told(migrate, aws, capsys):
    aws.fill(single(0))

    def vanish(operation, _request):
        if operation == "DeleteItem":
            aws.world.put_item(single(5))
        if operation == "PutItem" and aws.operations.count(operation) == 2:
            key = {"leaseKey": {"S": multi(0)["leaseKey"]["S"]}}
            aws.world.model.call("DeleteItem", {"TableName": TABLE, "Key": key})

    aws.before = vanish
    assert migrate("multi-stream", "--apply") == 6
    assert "shardId-000000000000 is gone" in capsys.readouterr().err


@pytest.mark.parametrize("moment", ["before", "after"])
def test_requests_that_get_no_answer_or_are_throttled_are_repeated(migrate, aws, moment):
    aws.fill(*TABLE_ROWS)
    failed = set()

    def fail_once(operation, request):
        what = (operation, str(request))
        if what in failed or operation == "CreateTable":
            return
        failed.add(what)
        if operation in WRITES:
            raise UnknownOutcome(operation, "ReadTimeout")
        raise Throttled(operation, "ThrottlingException")

    setattr(aws, moment, fail_once)
    assert migrate("multi-stream", "--apply") == 0
    assert aws.items() == Rows(MOVED_ROWS).items


@pytest.mark.parametrize(
    ("operation", "error", "tries"),
    [
        ("Scan", Throttled("Scan", "ThrottlingException"), 12),
        ("Scan", Denied("Scan", "AccessDeniedException"), 1),
        ("PutItem", Throttled("PutItem", "ThrottlingException"), 12),
        ("PutItem", Denied("PutItem", "AccessDeniedException"), 1),
        ("PutItem", UnknownOutcome("PutItem", "ReadTimeout"), 12),
        ("PutItem", ConditionFailed("PutItem"), 12),
    ],
)
def test_what_fails_for_ever_ends_the_command(migrate, aws, operation, error, tries, capsys):
    aws.fill(single(0))

    def fail(name, _request):
        if name == operation:
            raise error

    aws.before = fail
    assert migrate("multi-stream", "--apply") == 1
    assert str(error) in capsys.readouterr().err
    assert aws.operations.count(operation) == tries
    assert aws.items() == Rows([single(0)]).items


def test_rows_of_two_streams_are_not_moved_to_keys_without_one(migrate, aws, capsys):
    aws.fill(multi(0), multi(0, OTHER))
    assert migrate("single-stream") == MoveRefused.exit_code == 5
    assert "rows of 2 streams" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--stream", "arn:aws:kinesis:us-east-1:999999999999:stream/other"),
        ("--stream", "123456789012:other:6"),
    ],
)
def test_rows_of_another_stream_than_the_file_has_are_not_moved(migrate, aws, arguments, capsys):
    aws.fill(multi(0, OTHER))
    assert migrate("single-stream", *arguments) == 5
    assert "add --stream 123456789012:other:5" in capsys.readouterr().err
    assert migrate("single-stream", "--stream", "123456789012:other:5") == 0


def test_the_epoch_is_the_one_of_the_table_or_of_the_command_line(migrate, aws, capsys):
    aws.fill(single(0), multi(1, Stream("x", account="123456789012", epoch=1_600_000_000_000)))
    assert migrate() == 0
    assert "of 123456789012:orders:1700000000250 to" in capsys.readouterr().out
    assert migrate("multi-stream", "--epoch", "77") == 0
    assert "of 123456789012:orders:77 to" in capsys.readouterr().out
    identifier = "123456789012:orders:78"
    assert migrate("multi-stream", "--stream", identifier, "--epoch", "78") == 0
    assert f"of {identifier} to" in capsys.readouterr().out
    assert migrate("multi-stream", "--stream", identifier, "--epoch", "79") == 2


def test_a_stream_whose_creation_time_is_not_told_needs_an_epoch(migrate, aws, monkeypatch, capsys):
    arn = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"

    async def describe(_kinesis, **_request):
        return {"StreamDescriptionSummary": {"StreamARN": arn, "StreamStatus": "ACTIVE"}}

    monkeypatch.setattr(FakeKinesis, "describe_stream_summary", describe)
    aws.fill(single(0))
    assert migrate() == 4
    assert (
        "does not say when the stream orders was created: give --epoch" in capsys.readouterr().err
    )
    assert migrate("multi-stream", "--epoch", "77") == 0
    assert "of 123456789012:orders:77 to" in capsys.readouterr().out


def test_a_begun_move_needs_no_epoch_to_go_on(migrate, aws):
    aws.fill(single(0))

    def kill(operation, _request):
        if operation == "DeleteItem":
            raise Killed

    aws.before = kill
    with pytest.raises(Killed):
        migrate("multi-stream", "--apply", "--epoch", "77")
    aws.before = lambda *_: None
    assert migrate("multi-stream", "--apply") == 0
    (row,) = aws.items().values()
    assert row["streamName"] == {"S": "123456789012:orders:77"}


def test_a_stream_that_does_not_exist_is_named(migrate, aws, capsys):
    assert migrate("multi-stream", "--stream", "gone") == ResourceMissing.exit_code
    assert "the stream gone does not exist" in capsys.readouterr().err
    assert migrate("multi-stream", "--stream", "arn:aws:s3:::x") == 2


def test_a_table_that_does_not_exist_is_named(migrate, aws, capsys):
    aws.world.delete_table()
    assert migrate() == ResourceMissing.exit_code
    assert "the lease table app does not exist" in capsys.readouterr().err


def test_the_file_may_be_given_as_for_the_daemon(migrate, aws, capsys):
    aws.fill(single(0))
    arguments = ["leases", "migrate", "--properties", str(migrate.path), "--to", "multi-stream"]
    assert dispatch(arguments) == 0
    assert "app: 1 row of" in capsys.readouterr().out
    assert dispatch(["leases", "migrate", "--to", "multi-stream"]) == 2


def test_the_file_may_be_that_of_a_worker_of_many_streams(migrate, aws, capsys):
    aws.fill(single(0))
    text = PROPERTIES.replace("streamName=orders", "multiStream=true\nstreams=orders")
    migrate.path.write_text(text + "streamCreationEpochUnit=millis\n")
    assert migrate() == 0
    assert "of 123456789012:orders:1700000000250 to" in capsys.readouterr().out
    migrate.path.write_text(text.replace("streams=orders", "streams=orders, clicks"))
    assert migrate() == 2
    assert "say which by --stream" in capsys.readouterr().err
    assert migrate("multi-stream", "--stream", "orders") == 0
    aws.fill(multi(0))
    assert migrate("single-stream") == 5


def test_the_stream_of_a_table_gets_the_keys_of_java(migrate, aws, capsys):
    aws.fill(single(0))
    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310"
    migrate.path.write_text(PROPERTIES.replace("streamName=orders", f"streamArn={arn}"))
    assert migrate("multi-stream", "--apply") == 0
    identifier = "123456789012:us-east-1$123456789012$Orders$2026-11-28T07_09_24.310:1"
    (row,) = aws.items().values()
    assert row["leaseKey"] == {"S": f"{identifier}:shardId-000000000000"}
    assert row["streamName"] == {"S": identifier}
    assert migrate("single-stream", "--apply") == 0
    assert list(aws.items()) == ["shardId-000000000000"]
