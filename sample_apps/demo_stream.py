"""The stream of the demo: flights put in order, a split and a merge on the way."""

import threading
import time

import flights_data

SHARDS = 4
BATCH = 500


def create(kinesis, stream):
    """A new stream, ready to take records."""
    kinesis.create_stream(StreamName=stream, ShardCount=SHARDS)
    wait_active(kinesis, stream)


def wait_active(kinesis, stream):
    """Wait until the stream takes the next change."""
    while (
        kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"][
            "StreamStatus"
        ]
        != "ACTIVE"
    ):
        time.sleep(0.05)


def open_shards(kinesis, stream):
    """Open shards in the order of their hash keys."""
    shards = kinesis.list_shards(StreamName=stream)["Shards"]
    still_open = [s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"]]
    return sorted(still_open, key=lambda s: int(s["HashKeyRange"]["StartingHashKey"]))


def split_one(kinesis, stream):
    """Split the first open shard in the middle."""
    shard = open_shards(kinesis, stream)[0]
    keys = shard["HashKeyRange"]
    middle = (int(keys["StartingHashKey"]) + int(keys["EndingHashKey"])) // 2
    kinesis.split_shard(
        StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle)
    )
    wait_active(kinesis, stream)


def merge_two(kinesis, stream):
    """Merge the last two open shards, which are neighbors."""
    left, right = open_shards(kinesis, stream)[-2:]
    kinesis.merge_shards(
        StreamName=stream, ShardToMerge=left["ShardId"], AdjacentShardToMerge=right["ShardId"]
    )
    wait_active(kinesis, stream)


class Putting:
    """Puts all rows in a thread of its own; splits after a third, merges after two thirds.

    Args:
        kinesis: client.
        stream: its name.
        rows: how many flights.
        backlog: rows that may be put but not ``read`` yet; whoever reads keeps ``read`` current.
            None = as fast as the stream takes them.
    """

    def __init__(self, kinesis, stream, rows, backlog=None):
        self.kinesis = kinesis
        self.stream = stream
        self.rows = rows
        self.backlog = backlog
        self.put = 0
        self.read = 0
        self.done = False
        self.error = None
        threading.Thread(target=self._run, daemon=True).start()

    def check(self):
        """End the demo if putting failed."""
        if self.error is not None:
            raise SystemExit(f"putting failed: {self.error}")

    def _run(self):
        try:
            self._put_all()
        except BaseException as error:  # noqa: BLE001 - shown by the main thread
            self.error = repr(error)

    def _put_all(self):
        batch = []
        plan = {self.rows // 3: split_one, 2 * self.rows // 3: merge_two}
        for key, body in flights_data.flights(self.rows):
            batch.append({"PartitionKey": key, "Data": body})
            if len(batch) == BATCH:
                self._put_batch(batch)
                batch = []
                for at in [at for at in plan if self.put >= at]:
                    plan.pop(at)(self.kinesis, self.stream)
        if batch:
            self._put_batch(batch)
        self.done = True

    def _put_batch(self, batch):
        while self.backlog is not None and self.put - self.read >= self.backlog:
            time.sleep(0.05)
        answer = self.kinesis.put_records(StreamName=self.stream, Records=batch)
        if answer["FailedRecordCount"]:
            raise SystemExit(f"{answer['FailedRecordCount']} records were refused")
        self.put += len(batch)
