"""A process that commits batches to an Iceberg table until it is killed; see ``test_iceberg_kills.py``."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from kcl_mld.spark.iceberg.commit import TableCommit
from tests.unit.spark.iceberg_kit import arrow_of, catalog_in, has_row, marked
from tests.unit.spark.table_kit import BASE, batch, shard


def main(folder: str, seed: str, shards: str) -> None:
    """Take shards as they are in the table, and go on; a shard that is lost is taken again."""
    rng = random.Random(int(seed))
    table = marked(catalog_in(Path(folder)))
    owned = [shard(int(number)) for number in shards.split(",")]
    places: dict[int, int] = {}
    print("begun", flush=True)
    while True:
        batches = []
        for number, key in enumerate(owned):
            if rng.random() < 0.3:
                continue
            if number not in places:
                position = table.mark(key)
                places[number] = 0 if position is None else position.sequence - BASE
            batches.append(batch(key, places[number], places[number] + rng.randint(1, 9)))
        if not batches:
            continue
        rows = arrow_of(*batches, keep=has_row)
        found = TableCommit(table, batches, lambda _, rows=rows: rows).run()
        for number, key in enumerate(owned):
            for each in batches:
                if each.shard == key and str(found[key]) == "stands":
                    places[number] = each.to.sequence - BASE
                elif each.shard == key and str(found[key]) == "lost":
                    places.pop(number)
        print(*sorted(set(map(str, found.values()))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
