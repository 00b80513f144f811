"""What the demo's Delta table says: a PySpark query, a table and a plot.

``delay_by_hour.csv`` has the mean departure delay per carrier and hour, ``delay_by_day.csv`` per
carrier and day; ``delay_by_carrier.png`` shows the latter.
"""

import contextlib
import csv
import os
import pathlib
import tempfile

import demo_plot
from deltalake import DeltaTable
from pyspark.sql import functions as F

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.server.launcher import EmbeddedServer
from kcl_mld.spark.server.sessions import ConnectSessions

#: Hours of the table: outside of them nothing is scheduled.
HOURS = range(5, 24)


def by_hour(flights):
    """Mean departure delay in minutes per carrier and hour of the scheduled departure."""
    return (
        flights.groupBy("carrier", "airline", "hour")
        .agg(F.count("*").alias("flights"), F.round(F.mean("dep_delay"), 2).alias("delay_min"))
        .orderBy("carrier", "hour")
    )


def by_day(flights):
    """Mean departure delay in minutes per carrier and day."""
    return (
        flights.groupBy("carrier", "airline", "day")
        .agg(F.count("*").alias("flights"), F.round(F.mean("dep_delay"), 2).alias("delay_min"))
        .orderBy("carrier", "day")
    )


def table(rows):
    """Carriers by hours, for people; a dash where nobody flies."""
    airlines, delays = {}, {}
    for row in rows:
        airlines[row["carrier"]] = row["airline"] or "?"
        delays[row["carrier"], row["hour"]] = row["delay_min"]
    lines = [
        "mean departure delay in minutes by hour of the day, New York",
        f"{'':<30}" + "".join(f"{hour:>4}" for hour in HOURS),
    ]
    for carrier, airline in sorted(airlines.items()):
        cells = [delays.get((carrier, hour)) for hour in HOURS]
        shown = "".join(f"{'-' if one is None else round(one):>4}" for one in cells)
        lines.append(f"{carrier + ' ' + airline:<30.30}" + shown)
    return "\n".join(lines)


def write_csv(path, rows):
    """Rows of a query as a CSV file with a header."""
    with path.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(rows[0].asDict())
        writer.writerows(rows)


@contextlib.contextmanager
def spark_session():
    """A session on an embedded server, started as the worker starts its own."""
    config = read_properties({"spark.master": "local[2]"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        server = EmbeddedServer.launch(config, pathlib.Path(folder), os.environ)
        try:
            server.wait_ready(config.start_timeout_s)
            sessions = ConnectSessions(server.url, server.token, config, "flights-report")
            try:
                yield sessions.get()
            finally:
                sessions.close()
        finally:
            server.stop()


def run(path, folder):
    """Query the Delta table, write two tables and the plot; what to print."""
    with spark_session() as spark:
        flights = spark.createDataFrame(DeltaTable(path).to_pyarrow_table())
        hours, days = by_hour(flights).collect(), by_day(flights).collect()
    write_csv(folder / "delay_by_hour.csv", hours)
    write_csv(folder / "delay_by_day.csv", days)
    demo_plot.draw(days, folder / "delay_by_carrier.png")
    names = "delay_by_hour.csv, delay_by_day.csv and delay_by_carrier.png"
    rows = sum(row["flights"] for row in hours)
    return f"{table(hours)}\na PySpark query over {rows:,} rows wrote {names} into .demo"
