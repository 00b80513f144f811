"""``kcl-mld local`` with a file that names the stream of a table."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

import botocore.session
from botocore.config import Config

from tests.process.daemon import wait_until

LOCAL_FILE = """executableName = python3 app.py
streamArn = arn:aws:dynamodb:eu-west-1:123456789012:table/Orders/stream/2026-11-28T07:09:24.310
applicationName = orders-index
AwsCredentialsProvider = DefaultCredentialsProvider
retrievalMode = POLLING
idleTimeBetweenReadsInMillis = 100
metricsLevel = NONE
"""
HELLO = Path(__file__).resolve().parents[2] / "sample_apps" / "hello_app.py"


class Local:
    """``kcl-mld local``, as installed, with its daemon."""

    def __init__(self, command, folder):
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, cwd=folder, stderr=log)

    @property
    def output(self):
        return self._log.read_text()

    def exported(self, name):
        """A variable of the environment that it prints."""
        found = re.search(rf"^export {name}=(.+)$", self.output, re.MULTILINE)
        return found and found[1]

    def changes(self):
        """What the program has printed: a sequence number and a change for each record."""
        said = [
            json.loads(line)["msg"] for line in self.output.split("\n") if '"mld.child"' in line
        ]
        texts = [text.split(" stderr: ", 1)[1].split(" ", 1) for text in said]
        return [(int(number), json.loads(change)) for number, change in texts]

    def stop(self):
        """Ctrl-C, and its exit code."""
        self._process.send_signal(signal.SIGINT)
        return self._process.wait()

    def kill(self):
        self._process.kill()
        self._process.wait()


def test_kcl_mld_local_has_the_table_of_a_file_and_replaces_its_shards(installed, tmp_path):
    shutil.copy(HELLO, tmp_path / "app.py")
    (tmp_path / "app.properties").write_text(LOCAL_FILE)
    (tmp_path / "orders.jsonl").write_text('{"id": "0", "total": 12.50}\n{"id": "1"}\n')
    command = [installed / "kcl-mld", "local", "--properties", "app.properties"]
    options = ["--put", "orders.jsonl", "--table-key", "id", "--table-shard-s", "3"]
    local = Local([*command, *options], tmp_path)
    try:
        wait_until(lambda: len(local.changes()) == 2, "the items of the file")
        url = local.exported("AWS_ENDPOINT_URL_DYNAMODB_STREAMS")
        dynamodb, streams = (
            botocore.session.Session().create_client(
                service,
                region_name=local.exported("AWS_REGION"),
                endpoint_url=url,
                aws_access_key_id="x",
                aws_secret_access_key="x",
                config=Config(proxies={}),
            )
            for service in ("dynamodb", "dynamodbstreams")
        )
        arn = dynamodb.describe_table(TableName="Orders")["Table"]["LatestStreamArn"]
        count, shards = 2, 1
        while shards < 4:  # of which three have ended
            dynamodb.put_item(TableName="Orders", Item={"id": {"S": str(count)}})
            count += 1
            wait_until(lambda: len(local.changes()) >= count, "the change")  # noqa: B023
            described = streams.describe_stream(StreamArn=arn)["StreamDescription"]
            shards = len(described["Shards"])
        assert local.stop() == 0
    finally:
        local.kill()
    numbers, changes = zip(*local.changes(), strict=True)
    assert [one["dynamodb"]["Keys"]["id"]["S"] for one in changes] == [*map(str, range(count))]
    assert sorted(set(numbers)) == list(numbers)
    assert changes[0]["dynamodb"]["NewImage"] == {"id": {"S": "0"}, "total": {"N": "12.50"}}
    assert local.output.count("started child") >= 3
    assert "TRIM_HORIZON is used to see --put" in local.output
