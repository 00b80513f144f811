"""From the body of a GetRecords answer to the child's line: ours against boto3's way, per core.

Run: ``python benchmarks/bench_convert.py``. Prints MB of payload per CPU second. The boto3 row is
botocore's own parser (per-member shapes, base64 and timestamps decoded) followed by base64 and
``json.dumps``, without HTTP.
"""

from __future__ import annotations

import base64
import json
import random
import time
from typing import TYPE_CHECKING

import botocore.session
from botocore.parsers import create_parser

from mld.adapters.allocator import keep_large_blocks
from mld.decide.retrieval.delivery import deliver
from mld.model.retrieval.wire import read_batch
from mld.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST = 49590338271490256608559692538361571095921575989136588898
ROUNDS = 9


def body_of(count: int, size: int) -> bytes:
    """An answer with so many records of so many bytes."""
    rng = random.Random(1)
    records = [
        {
            "ApproximateArrivalTimestamp": 1763382100.123 + index / 1000,
            "Data": base64.b64encode(rng.randbytes(size)).decode(),
            "PartitionKey": f"pk-{index}",
            "SequenceNumber": str(FIRST + index),
        }
        for index in range(count)
    ]
    answer = {"Records": records, "NextShardIterator": "x" * 200, "MillisBehindLatest": 0}
    return json.dumps(answer, separators=(",", ":")).encode()


def ours(checkpoint: ExtendedSequenceNumber) -> Callable[[bytes], object]:
    """Envelope, records, line."""
    return lambda body: deliver(read_batch(body), checkpoint, None, even_if_empty=False).line


def boto3_way() -> Callable[[bytes], object]:
    """What a daemon on boto3 would do."""
    model = botocore.session.get_session().get_service_model("kinesis")
    shape = model.operation_model("GetRecords").output_shape
    parser = create_parser("json")

    def convert(body: bytes) -> bytes:
        response = {"body": body, "headers": {}, "status_code": 200}
        records = [
            {
                "data": base64.b64encode(record["Data"]).decode(),
                "partitionKey": record["PartitionKey"],
                "sequenceNumber": record["SequenceNumber"],
                "approximateArrivalTimestamp": int(
                    record["ApproximateArrivalTimestamp"].timestamp() * 1000
                ),
                "subSequenceNumber": 0,
                "action": "record",
            }
            for record in parser.parse(response, shape)["Records"]
        ]
        line = {"action": "processRecords", "records": records, "millisBehindLatest": 0}
        return json.dumps(line).encode()

    return convert


def best_s(convert: Callable[[bytes], object], body: bytes, rounds: int) -> float:
    """CPU seconds of the fastest run."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        convert(body)
        times.append(time.process_time() - began)
    return min(times)


def main() -> None:
    """Print the table."""
    keep_large_blocks()
    plain = ours(TRIM_HORIZON)
    filtered = ours(ExtendedSequenceNumber(str(FIRST)))
    print(f"{'records':>16}  {'path':<28}{'MB/s':>8}{'ratio':>8}")
    for count, size in ((5_000, 1024), (9_800, 1024), (10_000, 100)):
        body = body_of(count, size)
        reference = best_s(boto3_way(), body, 2)
        rows = (
            ("boto3 parser + json.dumps", reference),
            ("deliver", best_s(plain, body, ROUNDS)),
            ("deliver, filtered", best_s(filtered, body, ROUNDS)),
        )
        for name, seconds in rows:
            rate = count * size / seconds / 1e6
            label = f"{count} x {size} B"
            print(f"{label:>16}  {name:<28}{rate:>8.1f}{reference / seconds:>8.1f}")


if __name__ == "__main__":
    main()
