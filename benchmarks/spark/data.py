"""JSON records of 1 KB, and what is done to them on both sides."""

import json
import random

from pyspark.sql import functions as F

SCHEMA = "id bigint, user string, amount double, at string, country string, note string"
SIZE = 1000
COLUMNS = ("id", "user", "amount", "at", "country")


def wanted(df):
    """The transformation that both sides run."""
    return df.where(F.col("amount") > 5.0).select(*COLUMNS, F.length("note").alias("note_length"))


def records(count, seed=0):
    """``count`` JSON documents of 1000 bytes."""
    rng = random.Random(seed)
    for number in range(count):
        body = {
            "id": number,
            "user": f"user-{rng.randrange(5000)}",
            "amount": round(rng.uniform(0, 100), 2),
            "at": f"2026-01-{1 + number % 28:02d}T12:00:00Z",
            "country": rng.choice(("DE", "FR", "US", "JP", "BR")),
            "note": "",
        }
        body["note"] = "n" * (SIZE - len(json.dumps(body, separators=(",", ":"))))
        yield json.dumps(body, separators=(",", ":")).encode()
