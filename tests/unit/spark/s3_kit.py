"""Delta tables in moto's S3, a server in a process of its own, without Spark."""

from __future__ import annotations

import io
import json
import uuid
from collections import Counter

import pyarrow.parquet as pq

BUCKET = "tables"


class S3:
    """A bucket, as somebody else sees it.

    Args:
        aws: the server.
    """

    def __init__(self, aws):
        self.aws = aws
        self.client = aws.client("s3")
        self.client.create_bucket(Bucket=BUCKET)

    def place(self):
        """A new place for a table."""
        return f"s3://{BUCKET}/tests/{uuid.uuid4().hex}"

    def keys(self, place=""):
        """Of the objects of a table, from its place on."""
        prefix = place.removeprefix(f"s3://{BUCKET}/")
        found = self.client.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [each["Key"].removeprefix(f"{prefix}/") for each in found]

    def read(self, place, key):
        """An object's content."""
        name = f"{place}/{key}".removeprefix(f"s3://{BUCKET}/")
        return self.client.get_object(Bucket=BUCKET, Key=name)["Body"].read()

    def rows_in(self, place):
        """How often each row is in the table, by its log alone."""
        live = {}
        for key in self.keys(place):
            if key.startswith("_delta_log/") and key.endswith(".json"):
                for line in self.read(place, key).decode().splitlines():
                    action = json.loads(line)
                    if "add" in action:
                        live[action["add"]["path"]] = None
                    if "remove" in action:
                        live.pop(action["remove"]["path"])
        found = Counter()
        for key in live:
            table = pq.read_table(io.BytesIO(self.read(place, key)), columns=["shard_id", "n"])
            found.update((each["shard_id"][-1], each["n"]) for each in table.to_pylist())
        return found

    def pending(self, place):
        """The marks of jobs that are not committed."""
        return [key for key in self.keys(place) if "pending" in key]
