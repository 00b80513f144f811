"""The least policy of each role, by what the file says."""

from __future__ import annotations

import pytest

from kcl_mld.aws import ports as aws
from kcl_mld.ops.rules.iam_policy import PolicyScope, Role, least_policy, policy_document
from tests.unit.config.test_config_build import ARN, config
from tests.unit.config.test_stream_list import many
from tests.unit.config.test_table_stream import built as of_table

ACCOUNT = "123456789012"
SCOPE = PolicyScope(region="eu-central-1", account=ACCOUNT)
POLLING = "retrievalMode = POLLING"
OF_STREAM = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream"
OF_TABLE = f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table"


def statements(built, role=Role.WORKER, scope=SCOPE):
    found = least_policy(built, role, scope)
    assert len({one.sid for one in found}) == len(found)
    return {one.sid: one for one in found}


def test_a_worker_that_polls_one_stream():
    found = statements(config(POLLING))
    assert list(found) == [
        "ReadStreams",
        "Leases",
        "CreateLeaseTable",
        "OwnLeases",
        "SeeOldTables",
        "Metrics",
    ]
    assert found["ReadStreams"].resources == (f"{OF_STREAM}/str",)
    assert found["Leases"].resources == (f"{OF_TABLE}/app",)
    assert found["OwnLeases"].resources == (f"{OF_TABLE}/app/index/LeaseOwnerToLeaseKeyIndex",)
    assert found["SeeOldTables"].resources == (f"{OF_TABLE}/app-CoordinatorState",)
    shown = policy_document([found["Metrics"], found["SeeOldTables"]])
    assert shown == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Metrics",
                "Effect": "Allow",
                "Action": ["cloudwatch:PutMetricData"],
                "Resource": ["*"],
                "Condition": {"StringEquals": {"cloudwatch:namespace": "app"}},
            },
            {
                "Sid": "SeeOldTables",
                "Effect": "Allow",
                "Action": ["dynamodb:DescribeTable", "dynamodb:GetItem"],
                "Resource": [f"{OF_TABLE}/app-CoordinatorState"],
            },
        ],
    }


def test_what_the_file_switches_on_is_added():
    on = ["leaseTablePitrEnabled = true", "glueSchemaRegistry.enabled = true"]
    found = statements(config(POLLING, *on, "metricsLevel = NONE"))
    assert "Metrics" not in found
    assert found["Schemas"].actions == ("glue:GetSchemaVersion",)
    assert "dynamodb:UpdateContinuousBackups" in found["CreateLeaseTable"].actions
    keys = PolicyScope(region="r", kms_keys=("k",))
    assert statements(config(POLLING), scope=keys)["EncryptedStreams"].resources == ("k",)


def test_each_client_has_its_region_and_its_partition():
    lines = [POLLING, "kinesisClient.region = eu-west-1", "dynamoDbClient.region = cn-north-1"]
    found = statements(config(*lines))
    assert found["ReadStreams"].resources == (f"arn:aws:kinesis:eu-west-1:{ACCOUNT}:stream/str",)
    assert found["Leases"].resources == (f"arn:aws-cn:dynamodb:cn-north-1:{ACCOUNT}:table/app",)
    nowhere = statements(config(POLLING, without=("regionName",)))
    assert ":eu-central-1:" in nowhere["ReadStreams"].resources[0]
    assert ":eu-central-1:" in nowhere["Leases"].resources[0]


def test_the_stream_of_an_arn_may_be_of_another_account():
    scope = PolicyScope(region="us-east-1", account="210987654321")
    found = statements(config(POLLING, streamArn=ARN, streamArnAddressing="arn"), scope=scope)
    assert found["ReadStreams"].resources == (ARN,)
    assert ":210987654321:table/app" in found["Leases"].resources[0]
    assert ":*:" in statements(config(), scope=PolicyScope(region="r"))["Leases"].resources[0]


@pytest.mark.parametrize(
    ("lines", "consumer"),
    [([], "app"), (["fanoutConfig.consumerName = mine"], "mine")],
)
def test_fan_out_has_a_consumer_by_name(lines, consumer):
    found = statements(config(*lines))["FanOut"]
    assert found.actions == (
        "kinesis:RegisterStreamConsumer",
        "kinesis:DescribeStreamConsumer",
        "kinesis:SubscribeToShard",
    )
    assert found.resources == (f"{OF_STREAM}/str", f"{OF_STREAM}/str/consumer/{consumer}:*")


def test_fan_out_with_a_consumer_as_given_only_subscribes():
    given = f"{OF_STREAM}/str/consumer/c:1"
    found = statements(config(f"fanoutConfig.consumerArn = {given}"))
    assert "FanOut" not in found
    assert found["FanOutAsGiven"].actions == ("kinesis:SubscribeToShard",)
    assert found["FanOutAsGiven"].resources == (given,)


def test_many_streams_of_which_one_is_pushed():
    lines = [POLLING, "stream.clicks.retrievalMode = FANOUT"]
    listed = f"orders, clicks, {ARN}, 210987654321:views:1700000000"
    found = statements(many(*lines, streams=listed).require())
    assert found["ReadStreams"].resources == (
        f"{OF_STREAM}/orders",
        f"{OF_STREAM}/clicks",
        ARN,
        "arn:aws:kinesis:us-east-1:210987654321:stream/views",
    )
    assert found["FanOut"].resources == (
        f"{OF_STREAM}/clicks",
        f"{OF_STREAM}/clicks/consumer/app:*",
    )


@pytest.mark.parametrize(
    ("rule", "names", "asks_tags"),
    [
        ("streamNamePattern = orders-*, c?", ["orders-*", "c?"], False),
        ("streamNamePattern = orders-[ab]", ["*"], False),
        ("streamNamePattern = /orders-\\\\d+/", ["*"], False),
        ("streamTags = team=x", ["*"], True),
    ],
)
def test_streams_that_a_rule_finds(rule, names, asks_tags):
    found = statements(many(POLLING, rule, streams="own").require(), Role.VIEWER)
    assert found["ReadStreams"].resources == tuple(f"{OF_STREAM}/{one}" for one in ["own", *names])
    tags = ("kinesis:ListTagsForStream",) if asks_tags else ()
    assert found["FindStreams"].actions == ("kinesis:ListStreams", *tags)
    assert found["FindStreams"].resources == ("*",)
    pushed = many(rule, "stream.orders-1.retrievalMode = FANOUT", POLLING, streams="own").require()
    assert f"{OF_STREAM}/{names[0]}/consumer/app:*" in statements(pushed)["FanOut"].resources


def test_every_action_of_the_ports_is_of_a_worker_that_uses_all():
    ports = (aws.DynamoDb, aws.Kinesis, aws.CloudWatch, aws.Glue)
    asked = {
        name.title().replace("_", "")
        for port in ports
        for name in vars(port)
        if not name.startswith("_")
    }
    scope = PolicyScope(region="r", has_old_tables=True)
    on = ["leaseTablePitrEnabled = true", "glueSchemaRegistry.enabled = true", "streamTags = a=b"]
    found = statements(many("retrievalMode = FANOUT", *on).require(), scope=scope).values()
    named = {action.partition(":")[2] for one in found for action in one.actions}
    assert asked - named == {"TransactWriteItems"}  # it has no permission of its own


def test_a_viewer_reads_and_an_operator_changes_rows():
    viewer = statements(config(POLLING), Role.VIEWER)
    assert list(viewer) == ["ReadStreams", "ReadLeases", "SeeOldTables"]
    verbs = {action.partition(":")[2] for one in viewer.values() for action in one.actions}
    assert verbs == {
        *("DescribeStreamSummary", "ListShards", "GetShardIterator", "GetRecords"),
        *("DescribeTable", "Scan", "GetItem"),
    }
    operator = statements(config(POLLING), Role.OPERATOR)
    assert list(operator) == [*viewer, "ChangeLeases", "ChangeConsumers"]
    stream, consumers = operator["ChangeConsumers"].resources
    assert consumers == f"{stream}/consumer/*"
    verbs = {action.partition(":")[2] for action in operator["ChangeLeases"].actions}
    assert verbs == {"PutItem", "UpdateItem", "DeleteItem"}


def test_old_tables_are_read_and_moved():
    scope = PolicyScope(region="r", account=ACCOUNT, has_old_tables=True)
    metrics = f"{OF_TABLE}/app-WorkerMetricStats"
    assert statements(config(), Role.VIEWER, scope)["ReadMetrics"].resources == (metrics,)
    worker = statements(config(), scope=scope)
    assert worker["OldTables"].resources == (f"{OF_TABLE}/app-CoordinatorState", metrics)
    assert worker["MoveOldTables"].actions == ("dynamodb:ConditionCheckItem",)
    assert "SeeOldTables" not in worker


@pytest.mark.parametrize(
    ("destination", "action", "arn"),
    [
        ("s3://dead", "s3:PutObject", "arn:aws:s3:::dead/*"),
        ("s3://dead/a/b/", "s3:PutObject", "arn:aws:s3:::dead/a/b/*"),
        (
            "sqs:https://sqs.eu-west-1.amazonaws.com/123456789012/dead",
            "sqs:SendMessage",
            "arn:aws:sqs:*:123456789012:dead",
        ),
        ("file:letters", None, None),
    ],
)
def test_a_worker_may_keep_dead_letters(destination, action, arn):
    lines = ("childFailurePolicy = deadletter", f"onFailureDestination = {destination}")
    built = config(*lines)
    for role in Role:
        found = least_policy(built, role, PolicyScope(region="eu-west-1"))
        letters = [one for one in found if one.sid == "DeadLetters"]
        if role is Role.WORKER and action is not None:
            assert [(one.actions, one.resources) for one in letters] == [((action,), (arn,))]
        else:
            assert letters == []


def test_the_stream_of_a_table_has_actions_of_dynamodb():
    arn = f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/Orders/stream/2026-11-28T07:09:24.310"
    found = statements(config(streamName=arn))
    assert found["ReadStreams"].resources == (arn,)
    actions = ("DescribeStream", "GetShardIterator", "GetRecords")
    assert found["ReadStreams"].actions == tuple(f"dynamodb:{one}" for one in actions)
    assert "ChangeConsumers" not in statements(config(streamName=arn), Role.OPERATOR)


OBJECTS = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
GLUE = "arn:aws:glue:eu-west-1:123456789012"


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (("spark.sink.path = /data/t",), []),
        (
            (
                "spark.sink.path = s3://lake/t/",
                "spark.function.deadletter.path = s3a://lake/letters",
            ),
            [
                ("SparkTables", OBJECTS, ("arn:aws:s3:::lake/t/*", "arn:aws:s3:::lake/letters/*")),
                ("ListSparkTables", ("s3:ListBucket",), ("arn:aws:s3:::lake",)),
            ],
        ),
        (
            (
                "spark.sink = iceberg",
                "spark.sink.table = shop.amounts",
                "spark.sink.catalog.type = glue",
                "spark.sink.catalog.warehouse = s3://lake",
            ),
            [
                ("SparkTables", OBJECTS, ("arn:aws:s3:::lake/*",)),
                (
                    "SparkCatalog",
                    ("glue:GetDatabase", "glue:GetTable", "glue:CreateTable", "glue:UpdateTable"),
                    (f"{GLUE}:catalog", f"{GLUE}:database/shop", f"{GLUE}:table/shop/amounts"),
                ),
            ],
        ),
        (("spark.sink.catalog.type = glue", "spark.sink.table = amounts"), []),
    ],
)
def test_a_worker_with_spark_children_may_write_their_tables(lines, wanted):
    built = config("executableName = kcl-mld-spark app.py", *lines)
    scope = PolicyScope(region="eu-west-1", account="123456789012")
    found = least_policy(built, Role.WORKER, scope)
    spark = [one for one in found if "Spark" in one.sid]
    assert [(one.sid, one.actions, one.resources) for one in spark] == wanted
    viewer = least_policy(built, Role.VIEWER, scope)
    assert not [one for one in viewer if "Spark" in one.sid]


def test_glue_of_another_region_is_named_as_the_catalogs_key_says():
    built = config(
        "spark.sink.catalog.type = glue",
        "spark.sink.table = shop.amounts",
        "spark.sink.catalog.client.region = eu-north-1",
    )
    found = least_policy(built, Role.WORKER, PolicyScope(region="eu-west-1"))
    (catalog,) = [one for one in found if one.sid == "SparkCatalog"]
    assert catalog.resources[0] == "arn:aws:glue:eu-north-1:*:catalog"


def test_the_streams_of_tables_and_how_the_latest_ones_are_found():
    arn = f"{OF_TABLE}/Orders/stream/2026-11-28T07:09:24.310"
    found = statements(many(streams=arn).require())
    actions = tuple(
        f"dynamodb:{one}" for one in ("DescribeStream", "GetShardIterator", "GetRecords")
    )
    assert (found["ReadStreams"].actions, found["ReadStreams"].resources) == (actions, (arn,))
    assert "FanOut" not in found
    found = statements(many(streams=f"{arn}, {OF_TABLE}/Clicks").require())
    assert found["ReadStreams"].resources == (arn, f"{OF_TABLE}/Clicks/stream/*")
    assert found["FindStreams"].actions == ("dynamodb:ListStreams",)
    assert found["FindStreams"].resources == ("*",)


@pytest.mark.parametrize("role", Role)
def test_every_role_may_look_for_what_follows_a_disabled_stream_of_a_table(role):
    arn = f"{OF_TABLE}/Orders/stream/2026-11-28T07:09:24.310"
    found = statements(of_table(arn=arn).require(), role)
    assert found["FindStreams"].actions == ("dynamodb:ListStreams",)
    assert found["FindStreams"].resources == ("*",)
