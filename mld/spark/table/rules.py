"""Which tables and columns a commit without checks may touch. Pure.

Nobody looks at the files of a commit: a column too many, another type or a violated constraint is
accepted and found by a reader. So what cannot be kept is refused, with its name.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_RETENTION = "delta.setTransactionRetentionDuration"
_CONSTRAINT = "delta.constraints."
#: Features of a table with which delta-rs commits. It finds out at the commit that it can't.
WRITABLE_FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "variantType",
        "variantType-preview",
    }
)
#: Names of field metadata of columns that the writer would have to compute or to check.
_COMPUTED = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "delta.identity.step": "an identity column",
    "delta.invariants": "a column with an invariant",
}
_PLACES_OF_TYPES = frozenset({"type", "elementType", "keyType", "valueType"})
_COLLATED = "string collate "
_INDEXED, _INDEXED_COUNT = "delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols"
#: Types of which delta-rs logs ranges that hold each value: a decimal becomes a float in the log,
#: and a NaN is in no range.
_RANGED = ("byte", "short", "integer", "long", "date", "timestamp", "string")
_PLAIN_NAME = re.compile(r"[a-z_]\w*", re.IGNORECASE | re.ASCII)
#: As many as Delta indexes by default.
_MOST_INDEXED = 32
#: Types by the beginning of their names, and what to do instead.
_REFUSED = {
    "timestamp_ntz": "Spark's Delta reader refuses it; cast it to timestamp",
    "variant": "few readers know it; use to_json(...)",
    "void": "it has no type; cast it, e.g. to string",
    "interval": "it would become a whole number; use a number of your own",
    "time(": "no Delta type; use a string or a number",
    "char(": "use string",
    "varchar(": "use string",
}


def refused_features(features: Collection[str]) -> str:
    """Why no writer here can keep what a table's features ask for; "" if it can.

    Args:
        features: that a writer has to know.
    """
    if not (unknown := sorted(set(features) - WRITABLE_FEATURES)):
        return ""
    return (
        f"the table has the feature {unknown[0]}, which delta-rs can't write; ALTER TABLE ... "
        f"DROP FEATURE {unknown[0]} where that is possible, or name another directory"
    )


def refused_table(configuration: Mapping[str, str], fields: Sequence[Mapping[str, Any]]) -> str:
    """Why the table cannot be written; "" if it can.

    Args:
        configuration: the table's properties.
        fields: of its schema, as Delta writes them in JSON.
    """
    if _RETENTION in configuration:
        return (
            f"the table property {_RETENTION} drops the marks that say how far each shard has "
            f"come; ALTER TABLE ... UNSET TBLPROPERTIES ('{_RETENTION}')"
        )
    for name in sorted(configuration):
        if name.startswith(_CONSTRAINT):
            constraint = name.removeprefix(_CONSTRAINT)
            return f"the table has the CHECK constraint {constraint}, which nobody would check"
    if configuration.get("delta.columnMapping.mode", "none").lower() != "none":
        return "the table maps column names (delta.columnMapping.mode)"
    if configuration.get("delta.enableChangeDataFeed", "false").lower() == "true":
        return "the table keeps a change data feed (delta.enableChangeDataFeed)"
    for field in fields:
        for name, what in _COMPUTED.items():
            if name in field.get("metadata", {}):
                return f"the table has {what}: {field['name']}"
    return ""


def refused_type(fields: Sequence[Mapping[str, Any]], reasons: Mapping[str, str] = _REFUSED) -> str:
    """Which column has a type that not every reader reads, or another's name; "" if none has.

    Args:
        reasons: by the beginning of a type's name; those of Delta tables unless given.
    """
    names: dict[str, str] = {}
    for field in fields:
        if (other := names.get(field["name"].lower())) is not None:
            return f"the names of the columns {other} and {field['name']} differ in case only"
        names[field["name"].lower()] = field["name"]
        if why := _refused(field["name"], field["type"], reasons):
            return why
    return ""


def misfit(
    table: Sequence[Mapping[str, Any]],
    file: Sequence[Mapping[str, Any]],
    partitions: Sequence[str],
    *,
    nulls: Sequence[str] = (),
) -> str:
    """Why a file's columns do not fit the table; "" if they do.

    A nullable column of the table may be missing: its rows are null there, as in any Delta writer.

    Args:
        table: fields of its schema.
        file: fields of the schema in a file's footer.
        partitions: the table's partition columns, which no file has.
        nulls: columns of the file that may hold nulls.
    """
    wanted = {field["name"]: field for field in table if field["name"] not in partitions}
    found = {field["name"]: field for field in file}
    for name in found:
        if name not in wanted:
            same = [each for each in wanted if each.lower() == name.lower()]
            hint = f"; it has {same[0]}: names differ in case" if same else ""
            return f"the table has no column {name}{hint}"
    for name, field in wanted.items():
        if name not in found:
            if not field["nullable"]:
                return f"the column {name} is missing, and the table allows no nulls in it"
        elif why := difference(name, field["type"], found[name]["type"]):
            return why
        elif not field["nullable"] and name in nulls:
            return f"the column {name} has nulls, and the table allows none in it"
        elif not _holds(field["type"], found[name]["type"]):
            return f"the column {name} may have nulls where the table allows none"
    return ""


def difference(name: str, table: Any, rows: Any) -> str:
    """In what a column of rows differs from that of a table; "" if in nothing.

    Args:
        name: of the column.
        table: its type in the table, as Delta writes it in JSON.
        rows: its type in the rows.
    """
    if isinstance(table, dict) and isinstance(rows, dict) and table["type"] == rows["type"]:
        if table["type"] == "struct":
            return _difference_of_structs(name, table["fields"], rows["fields"])
        places = (("elementType", "element"), ("keyType", "key"), ("valueType", "value"))
        pairs = (
            difference(f"{name}.{what}", table[place], rows[place])
            for place, what in places
            if place in table
        )
        return next(filter(None, pairs), "")
    if bare(table) == bare(rows):
        return ""
    return f"the column {name} is {_name(rows)}, but {_name(table)} in the table"


def _difference_of_structs(
    name: str, table: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> str:
    names = [field["name"] for field in table]
    for field in rows:
        if field["name"] not in names:
            same = [each for each in names if each.lower() == field["name"].lower()]
            hint = f"; it has {same[0]}: names differ in case" if same else ""
            return f"the table has no column {name}.{field['name']}{hint}"
    found = {field["name"]: field["type"] for field in rows}
    for field in table:
        if field["name"] not in found:
            return f"the column {name}.{field['name']} is missing"
        kind = found[field["name"]]
        if why := difference(f"{name}.{field['name']}", field["type"], kind):
            return why
    if names != list(found):
        return f"the fields of the column {name} have another order than in the table"
    return ""


def index_property(
    configuration: Mapping[str, str],
    fields: Sequence[Mapping[str, Any]],
    partitions: Collection[str],
) -> tuple[str, str] | None:
    """The table property that keeps delta-rs from logging ranges that leave out rows; None = it is set.

    A reader that filters skips files by these ranges. So only columns whose ranges are right are
    indexed, whichever program writes.

    Args:
        configuration: the table's properties.
        fields: of its schema.
        partitions: its partition columns, which have no ranges.
    """
    columns = {each["name"]: each["type"] for each in fields if each["name"] not in partitions}
    if (text := configuration.get(_INDEXED)) is not None:
        names = [each.strip() for each in text.split(",")]
    elif configuration.get(_INDEXED_COUNT) == "0":
        names = []
    else:
        names = list(columns)
    if all(columns.get(each) in (*_RANGED, "boolean", "binary") for each in names):
        return None
    good = [
        name for name, kind in columns.items() if kind in _RANGED and _PLAIN_NAME.fullmatch(name)
    ]
    return (_INDEXED, ",".join(good[:_MOST_INDEXED])) if good else (_INDEXED_COUNT, "0")


def ranged_columns(fields: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the columns of which a footer may have ranges: of a float they leave out NaN.

    delta-rs can't name a column in a struct, so those have none.
    """
    return [
        each["name"]
        for each in fields
        if each["type"] in (*_RANGED, "boolean", "binary")
        or str(each["type"]).startswith("decimal")
    ]


def as_nullable(field: Mapping[str, Any]) -> Mapping[str, Any]:
    """A field of a table that Spark's rows make: nullable all the way down, as Spark's own are."""
    return {
        "name": field["name"],
        "type": _nullable(field["type"]),
        "nullable": True,
        "metadata": {},
    }


def fields_in(schema: str) -> list[dict[str, Any]]:
    """The fields of a schema in Spark's or Delta's JSON, which is the same.

    Collations are left out: Delta's types have none, and files are the same with any.
    """
    found: list[dict[str, Any]] = json.loads(schema, object_hook=_without_collation)["fields"]
    return found


def bare(kind: Any) -> Any:
    """A type without nullability and metadata, to compare; names keep their case."""
    if not isinstance(kind, dict):
        return kind
    match kind["type"]:
        case "struct":
            return [(field["name"], bare(field["type"])) for field in kind["fields"]]
        case "array":
            return ("array", bare(kind["elementType"]))
        case "map":
            return ("map", bare(kind["keyType"]), bare(kind["valueType"]))
        case other:
            return ("unknown", other)


def _without_collation(found: dict[str, Any]) -> dict[str, Any]:
    """One object of a schema; Spark writes e.g. ``string collate UTF8_BINARY`` for some strings."""
    for name in _PLACES_OF_TYPES & found.keys():
        if str(found[name]).startswith(_COLLATED):
            found[name] = "string"
    return found


def _nullable(kind: Any) -> Any:
    if not isinstance(kind, dict):
        return kind
    match kind["type"]:
        case "struct":
            return {"type": "struct", "fields": [as_nullable(each) for each in kind["fields"]]}
        case "array":
            return {
                "type": "array",
                "elementType": _nullable(kind["elementType"]),
                "containsNull": True,
            }
        case "map":
            return {
                "type": "map",
                "keyType": _nullable(kind["keyType"]),
                "valueType": _nullable(kind["valueType"]),
                "valueContainsNull": True,
            }
        case _:
            return kind


def _holds(table: Any, file: Any) -> bool:
    """True if nulls that a nested part of the file may have are allowed in the table."""
    if not isinstance(table, dict):
        return True
    match table["type"]:
        case "struct":
            return all(
                (mine["nullable"] or not its["nullable"]) and _holds(mine["type"], its["type"])
                for mine, its in zip(table["fields"], file["fields"], strict=True)
            )
        case "array":
            may = table["containsNull"] or not file["containsNull"]
            return may and _holds(table["elementType"], file["elementType"])
        case _:
            may = table["valueContainsNull"] or not file["valueContainsNull"]
            keys = _holds(table["keyType"], file["keyType"])
            return may and keys and _holds(table["valueType"], file["valueType"])


def _refused(name: str, kind: Any, reasons: Mapping[str, str]) -> str:
    """Why a column can't have a type, and which part of it is refused; "" if it can.

    Args:
        name: of the column, or the path to a part of it.
    """
    if not isinstance(kind, dict):
        whys = (why for begin, why in reasons.items() if str(kind).startswith(begin))
        return next((f"the column {name} has the type {kind}: {why}" for why in whys), "")
    match kind["type"]:
        case "struct":
            parts = [(field["name"], field["type"]) for field in kind["fields"]]
        case "array":
            parts = [("element", kind["elementType"])]
        case "map":
            parts = [("key", kind["keyType"]), ("value", kind["valueType"])]
        case other:
            return f"the column {name} has the type {other}: it is not known here"
    whys = (_refused(f"{name}.{part}", each, reasons) for part, each in parts)
    return next(filter(None, whys), "")


def _name(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
