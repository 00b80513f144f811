"""Rows whose types are not quite those of a table: what can be made to fit, and made to.

A number becomes one of a wider type that holds each of its values, as Delta's own writer does. A
struct gets the fields that the table has in it and the rows lack, as nulls. What the rows have and
the table lacks is added to the table, where that is wanted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kcl_mld.spark.table.data_files import Rows
from kcl_mld.spark.table.rules import as_nullable, bare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Types that hold each value of a type.
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
}
_ARROW = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def fitted(
    table: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The fields of rows once they are made to fit a table; what does not fit stays as it is.

    Args:
        table: fields of its schema, as Delta writes them in JSON.
        rows: fields of theirs.
    """
    wanted = {field["name"]: field["type"] for field in table}
    return [{**field, "type": _fitted(wanted.get(field["name"]), field["type"])} for field in rows]


def conformed(rows: Rows, table: Sequence[Mapping[str, Any]]) -> Rows:
    """Rows with the types that :func:`fitted` gives them."""
    fields = fitted(table, rows.fields)
    changed = [
        (found, field)
        for found, field in zip(rows.fields, fields, strict=True)
        if bare(found["type"]) != bare(field["type"])
    ]
    if not changed:
        return rows
    found = rows.table
    for before, after in changed:
        at = found.column_names.index(before["name"])
        column = found.column(at).combine_chunks()
        made = _converted(column, before["type"], after["type"])
        found = found.set_column(at, before["name"], made)
    return Rows(found, fields)


def additions(
    table: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The columns that a table gets so that it has all that the rows have, nullable.

    A column that gets fields in a struct is among them, with all its fields. Not among them are those
    whose name differs from one of the table in case only.
    """
    there = {field["name"].lower(): field for field in table}
    found: list[Mapping[str, Any]] = []
    for field in rows:
        if (same := there.get(field["name"].lower())) is None:
            found.append(as_nullable(field))
        elif (kind := _extended(same["type"], field["type"])) is not None:
            found.append({**same, "type": kind})
    return found


def _fitted(table: Any, rows: Any, *, is_within: bool = False) -> Any:
    """A type of rows, as near to the table's as it can be made.

    Args:
        is_within: True within an array or a map, whose structs stay as they are.
    """
    if isinstance(table, str) and isinstance(rows, str):
        return table if _holds(table, rows) else rows
    if not isinstance(table, dict) or not isinstance(rows, dict) or table["type"] != rows["type"]:
        return rows
    for place in {"elementType", "valueType"} & table.keys():
        return {**rows, place: _fitted(table[place], rows[place], is_within=True)}
    found = {field["name"]: field for field in rows.get("fields", ())}
    names = {field["name"] for field in table.get("fields", ())}
    if is_within or not names or found.keys() - names:
        return rows
    fields = [_field(each, found.get(each["name"])) for each in table["fields"]]
    return {"type": "struct", "fields": fields}


def _field(table: Mapping[str, Any], found: Mapping[str, Any] | None) -> Mapping[str, Any]:
    if found is None:
        return as_nullable(table)  # it will have nulls alone
    return {**found, "type": _fitted(table["type"], found["type"])}


def _holds(table: str, rows: str) -> bool:
    """Whether a type has each value of another one."""
    if table == rows or table in _WIDER.get(rows, ()):
        return True
    wide, narrow = _DECIMAL.fullmatch(table), _DECIMAL.fullmatch(rows)
    if wide is None or narrow is None:
        return False
    (digits, scale), (least, least_scale) = map(int, wide.groups()), map(int, narrow.groups())
    return scale >= least_scale and digits - scale >= least - least_scale


def _extended(table: Any, rows: Any) -> Any:
    """A struct with the fields that the rows have more; None if they have none."""
    if not (isinstance(table, dict) and isinstance(rows, dict)):
        return None
    if table["type"] != "struct" or rows["type"] != "struct":
        return None
    added = {field["name"]: field for field in additions(table["fields"], rows["fields"])}
    if not added:
        return None
    kept = [added.pop(field["name"], field) for field in table["fields"]]
    return {"type": "struct", "fields": [*kept, *added.values()]}


def _arrow_of(kind: Any) -> pa.DataType:
    """The type of Arrow that Spark gives the values of a type."""
    if isinstance(kind, dict):
        match kind["type"]:
            case "struct":
                return pa.struct(
                    [(each["name"], _arrow_of(each["type"])) for each in kind["fields"]]
                )
            case "array":
                return pa.list_(_arrow_of(kind["elementType"]))
            case _:
                return pa.map_(_arrow_of(kind["keyType"]), _arrow_of(kind["valueType"]))
    if (found := _DECIMAL.fullmatch(kind)) is not None:
        return pa.decimal128(*map(int, found.groups()))
    return _ARROW[kind]


def _converted(column: pa.Array, before: Any, after: Any) -> pa.Array:
    """Values as those of another type."""
    if bare(before) == bare(after):
        return column
    if not (isinstance(after, dict) and after["type"] == "struct"):
        return column.cast(_arrow_of(after))
    found = {field["name"]: number for number, field in enumerate(before["fields"])}
    parts, fields = [], []
    for field in after["fields"]:
        name, kind = field["name"], field["type"]
        if name not in found:
            part = pa.nulls(len(column), _arrow_of(kind))
        else:
            kind_before = before["fields"][found[name]]["type"]
            part = _converted(column.field(found[name]), kind_before, kind)
        parts.append(part)
        fields.append(pa.field(name, part.type))
    return pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
