#!/usr/bin/env python3
"""50,000 flights through kcl-mld, twice, counted at the far end.

Starts the embedded AWS. First the daemon runs ``flights_app.py``, a plain kclpy program; then, on a
stream of its own, ``spark_flights_app.py``, which turns the flights into a Delta table, through one
``kill -9`` of the worker. Both streams are split and merged while they are read. A PySpark query
reads the table back for a table and a plot in ``.demo``. The last line on stdout is one JSON
object, computed from what the programs saw and from the files.
"""

import json
import os
import pathlib
import shutil
import sys

import click
import demo_kclpy
import demo_report
import demo_spark

from kcl_mld.local.embedded import EmbeddedAws

ROWS = int(os.environ.get("DEMO_ROWS", "50000"))
FOLDER = pathlib.Path(__file__).resolve().parent.parent / ".demo"


def main():
    """Run it all; exit code 0 when nothing was lost, doubled, disordered, or left running."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    with EmbeddedAws() as aws:
        result, code = demo_kclpy.run(aws, FOLDER, ROWS)
        counts, is_clean = demo_spark.run(aws, FOLDER, ROWS)
    click.echo(demo_report.run(FOLDER / "flights", FOLDER))
    click.echo(json.dumps(result | counts))
    is_good = result["lost"] == result["out_of_order"] == code == 0 and is_clean
    return 0 if is_good and counts["spark_lost"] == counts["spark_duplicates"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
