"""A table with a stream, the application that reads it, and what its programs saw."""

from __future__ import annotations

import json

import botocore.session
from botocore.config import Config

from tests.process.daemon import Application, journals, wait_until

_CONTROL = "[TEST_CONTROL]"


class Table:
    """A table with a stream, and an application that reads it."""

    key = "pk"

    def __init__(self, aws, url, folder, name):
        self.name = name
        environment = aws.environment_for_child()

        def client(service):
            return botocore.session.Session().create_client(
                service,
                region_name="us-east-1",
                endpoint_url=url,
                aws_access_key_id=environment["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
                config=Config(proxies={}),
            )

        self.dynamodb, self.streams = client("dynamodb"), client("dynamodbstreams")
        self.dynamodb.create_table(
            TableName=name,
            KeySchema=[{"AttributeName": self.key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": self.key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
        )
        table = self.dynamodb.describe_table(TableName=name)["Table"]
        self.arn = table["LatestStreamArn"]
        self.app = Application(
            aws,
            f"{name}-app",
            folder,
            streamName=self.arn,
            kinesisEndpoint=url,
            dynamoDBEndpoint=url,
        )
        self.app.dynamodb = self.dynamodb
        self._put = 0

    def put(self, count):
        for _ in range(count):
            self.dynamodb.put_item(TableName=self.name, Item={"pk": {"S": str(self._put)}})
            self._put += 1

    def control(self, **action):
        item = {name: {"S": value} for name, value in action.items()}
        self.dynamodb.put_item(TableName=_CONTROL, Item=item)

    def shards(self):
        """Ids from the oldest to the open one."""
        found = self.streams.describe_stream(StreamArn=self.arn)["StreamDescription"]["Shards"]
        return [one["ShardId"] for one in found]

    def checkpoints(self):
        """Checkpoint of each lease, by shard."""
        return {
            key: item["checkpoint"]
            for key, item in self.app.items().items()
            if "checkpoint" in item
        }

    def numbers(self):
        """Sequence number of each record of the stream, in order of its shards."""
        found = []
        for shard_id in self.shards():
            answer = self.streams.get_shard_iterator(
                StreamArn=self.arn, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
            )
            records = self.streams.get_records(ShardIterator=answer["ShardIterator"])["Records"]
            found.append([one["dynamodb"]["SequenceNumber"] for one in records])
        return found


def entries(run, kind):
    """Entries of all programs of a worker, in order of time."""
    found = [one for journal in journals(run).values() for one in journal if one["saw"] == kind]
    return sorted(found, key=lambda one: one["at"])


def records_of(run):
    return [record for one in entries(run, "records") for record in one["records"]]


def wait_for_records(run, count):
    wait_until(lambda: len(records_of(run)) == count, f"{count} records")


def keys_of(run):
    changes = [json.loads(data) for *_, data in records_of(run)]
    return [int(change["dynamodb"]["Keys"]["pk"]["S"]) for change in changes]
