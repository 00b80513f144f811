"""What 1.x keeps, as lists that are made from the code: ``python -m tests.promise`` writes them.

``docs/compatibility.md`` is the promise, ``tests/golden/promise/*.txt`` are the lists, and
``tests/golden/test_promise.py`` compares them. A line that a reader can rely on is one fact.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import inspect
import json
import re
from pathlib import Path
from types import FunctionType

import click

from kcl_mld import errors
from kcl_mld.cli import COMMANDS, USAGE_EXIT, acceptance, explain
from kcl_mld.config.config import KEYS
from kcl_mld.config.spark import keys as spark_keys
from kcl_mld.config.stream_options import OPTION_PREFIX, OPTIONS
from kcl_mld.fleet.model.lock_item import LockItem, lock_from_item, lock_to_item
from kcl_mld.fleet.model.state_history import (
    ClientVersion,
    StateChange,
    StateItem,
    TableStatus,
    migration_to_item,
    table_migration_to_item,
)
from kcl_mld.fleet.model.worker_life import FailedLife, Instance, failed_life_to_item
from kcl_mld.fleet.model.worker_metrics import WorkerMetrics, WorstLag, metrics_to_item
from kcl_mld.leases.model.lease_item import MOVING, lease_from_item
from kcl_mld.signals.log_facts import CHILD_LOGGER
from kcl_mld.signals.model.metrics import FAMILIES, METRICS
from kcl_mld.spark import errors as spark_errors

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "tests" / "golden" / "promise"
LEASE_KEY = "leaseKey"


def properties():
    """Keys with their defaults, and the words that they take; not the advanced ones."""
    for key in (*KEYS.values(), *spark_keys.KEYS):
        if not key.advanced:
            default = "" if key.default is None else f" = {key.default}"
            yield f"{key.name}{default}"
            yield from (f"{key.name}: {word}" for word in key.choices)
    yield from (f"{prefix}*" for prefix in spark_keys.FREE_PREFIXES)
    yield from (f"{OPTION_PREFIX}*.{option}" for option in OPTIONS)


class _Watched(dict):
    """An item that knows which attributes were asked for."""

    def __init__(self, *values):
        super().__init__(*values)
        self.asked = set()

    def get(self, name, default=None):
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        self.asked.add(name)
        return super().__contains__(name)

    def __getitem__(self, name):
        self.asked.add(name)
        return super().__getitem__(name)


def _asked(item, read):
    """Attributes that are asked for when an item is read."""
    watched = _Watched(item)
    read(watched)
    return watched.asked


def _lease_items():
    """Rows of a worker of one stream, and of one of several."""
    shard = "shardId-000000000000"
    texts = {"checkpoint": "TRIM_HORIZON", "startingHashKey": "0", "endingHashKey": "1"}
    texts |= {"kclMldStream": "1:r:s", "entityType": "LEASE"}
    numbers = {"leaseCounter": "1", "ownerSwitchesSinceCheckpoint": "0"}
    numbers["checkpointSubSequenceNumber"] = "0"
    row = {name: {"S": text} for name, text in texts.items()}
    row |= {name: {"N": number} for name, number in numbers.items()}
    yield row | {LEASE_KEY: {"S": shard}}
    of_several = {"streamName": {"S": "1:s:1"}, "shardId": {"S": shard}}
    yield row | {LEASE_KEY: {"S": f"1:s:1:{shard}"}} | of_several


def _written(attributes, prefix=""):
    """Names of the attributes of an item, those of its maps too."""
    for name, value in attributes.items():
        yield f"{prefix}{name}"
        yield from _written(value.get("M", {}), f"{prefix}{name}.")


def attributes():
    """Attributes of each kind of item in the tables of a fleet."""
    change = StateChange(ClientVersion.CLIENT_VERSION_3X, "w", 1)
    version = StateItem(change, (change,))
    change = StateChange(TableStatus.TABLE_MIGRATION_STATUS_COMPLETE, "w", 1)
    migration = StateItem(change, (change,))
    metrics = WorkerMetrics(
        worker_id="w",
        updated_at_s=1,
        samples={"C": (1.0,)},
        limits={"C": (1,)},
        support=1,
        support_at_s=1,
        group="g",
        place="p",
        most=1,
        honors_pause=True,
        clock_ahead_s=1,
        instance=Instance("i", 1),
        worst_lag=WorstLag("k", 1),
    )
    life = FailedLife(
        instance="i", worker_id="w", lived_s=1, failed_at_s=1, why="y", lease_key="k", position="p"
    )
    leader = lock_to_item(LockItem("w", 1.0, "v", assigned="a"), LEASE_KEY)
    items = {
        "leader": leader,
        "client version": migration_to_item(version, LEASE_KEY),
        "table migration": table_migration_to_item(migration, LEASE_KEY),
        "worker metrics": metrics_to_item(metrics, LEASE_KEY),
        "failed life": failed_life_to_item(life, LEASE_KEY),
    }
    yield f"lease: {MOVING}"
    for row in _lease_items():
        yield from (f"lease: {name}" for name in _asked(row, lease_from_item) | row.keys())
    yield from (f"leader: {name}" for name in _asked(leader, lock_from_item))
    for kind, item in items.items():
        yield from (f"{kind}: {name}" for name in _written(item))


def _subclasses(error):
    for one in error.__subclasses__():
        yield one
        yield from _subclasses(one)


def exit_codes():
    """Exit codes, and the errors that end a program with them."""
    for program, root in (
        ("kcl-mld", errors.MldError),
        ("kcl-mld-spark", spark_errors.SparkChildError),
    ):
        module = root.__module__
        found = [root, *(one for one in _subclasses(root) if one.__module__ == module)]
        yield from (
            f"{program}: {one.exit_code} {one.__name__}"
            for one in found
            if "exit_code" in vars(one)
        )
    yield f"kcl-mld: {USAGE_EXIT} wrong usage"
    yield f"kcl-mld explain, kcl-mld wait: {explain.NEEDS_A_PERSON} something needs a person"
    yield f"kcl-mld acceptance: {acceptance.LEFT_EXIT} something is left in the account"


def metrics():
    """Names, units and dimensions."""
    for one in METRICS:
        if one.operation:
            dimension = f" by {one.dimension}" if one.dimension else ""
            yield f"CloudWatch: {one.operation} {one.name} {one.unit}{dimension}"
    for one in FAMILIES:
        yield " ".join((f"Prometheus: {one.name}", one.kind, *one.labels))


def loggers():
    """Names under which something is logged."""
    yield CHILD_LOGGER
    for path in (ROOT / "mld").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="getLogger"), args=[ast.Constant(value=str(name))]
                ):
                    if name.partition(".")[0] == "mld":
                        yield name


def messages():
    """Fields of each message between a daemon and a child, by the schemas, and of a record."""
    for path in (ROOT / "protocol" / "schema").glob("*.json"):
        schema = json.loads(path.read_text("utf-8"))
        yield from _fields(path.stem, schema)
        for part, inner in schema.get("$defs", {}).items():
            yield from _fields(part, inner)


def _fields(name, schema):
    for field, what in schema.get("properties", {}).items():
        kinds = what.get("type", what.get("const", what.get("enum", "")))
        text = kinds if isinstance(kinds, str) else "|".join(map(str, kinds))
        must = "" if field in schema.get("required", ()) else "?"
        yield f"{name}: {field}{must} {text}".rstrip()


def _parameters(name, value):
    """Each parameter: its place if it may be given by place, its name, its default."""
    found = [one for one in inspect.signature(value).parameters.values() if one.name != "self"]
    for place, one in enumerate(found, 1):
        by_place = f"{place} " if one.kind is one.POSITIONAL_OR_KEYWORD else ""
        default = "" if one.default is one.empty else f" = {one.default}"
        yield f"{name}: {by_place}{one.name}{default}"


def _public(name, value):
    """A public name: its signature, and what a class has."""
    if isinstance(value, type) and issubclass(value, enum.Enum):
        yield from (f"{name}.{member.name} = {member.value}" for member in value)
        return
    yield name
    if isinstance(value, type):
        if dataclasses.is_dataclass(value) or {"__init__", "_fields"} & vars(value).keys():
            yield from _parameters(name, value)
        for own, member in vars(value).items():
            if not own.startswith("_") and isinstance(
                member, property | classmethod | staticmethod | FunctionType
            ):
                yield from _public(f"{name}.{own}", getattr(value, own))
    elif callable(value):
        yield from _parameters(name, value)


def _api(module_name):
    module = importlib.import_module(module_name)
    for name in module.__all__:
        yield from _public(f"{module_name}.{name}", getattr(module, name))


def python_api():
    """What a program may import."""
    for module in ("kcl_mld_protocol", "kcl_mld_protocol.child", "kcl_mld.spark"):
        yield from _api(module)


def commands():
    """Commands and their options."""
    for name in COMMANDS:
        module = importlib.import_module(COMMANDS[name][0])
        yield from _options(
            f"kcl-mld {name}", getattr(module, name.replace("-", "_"), None) or module.run_command
        )


def _options(name, command):
    yield name
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield from (f"{name} {word}" for word in (*option.opts, *option.secondary_opts))
    if isinstance(command, click.Group):
        for sub in command.list_commands(click.Context(command)):
            yield from _options(f"{name} {sub}", command.get_command(click.Context(command), sub))


#: Name of a file -> what makes it.
LISTS = {
    "properties": properties,
    "attributes": attributes,
    "exit-codes": exit_codes,
    "metrics": metrics,
    "loggers": loggers,
    "messages": messages,
    "python-api": python_api,
    "commands": commands,
}


def lines_of(name):
    """A list as it is now."""
    return sorted({re.sub(r"\s+", " ", line) for line in LISTS[name]()})


def complaint(name, written, now):
    """What a difference between a list and the code means; "" = there is none."""
    said = ""
    if gone := sorted({*written} - {*now}):
        said += (
            f"1.x keeps these {name}, and they are gone or changed: {', '.join(gone)}. Without them "
            "files, programs, fleets or alerts of users fail: bring them back, or it is version 2.0 "
            "(docs/compatibility.md).\n"
        )
    if new := sorted({*now} - {*written}):
        said += (
            f"These {name} are new: {', '.join(new)}. From its first release on, 1.x keeps them. "
            "If they are to stay, write them down: python -m tests.promise.\n"
        )
    return said


def main():
    """Write the lists."""
    FOLDER.mkdir(exist_ok=True)
    for name in LISTS:
        (FOLDER / f"{name}.txt").write_text(
            "".join(f"{line}\n" for line in lines_of(name)), "utf-8"
        )


if __name__ == "__main__":
    main()
