"""Rows whose types are nearly those of the table."""

import json

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import BatchFailed
from kcl_mld.spark.sinks.delta import DeltaSink
from kcl_mld.spark.sinks.merge import MergeSink
from kcl_mld.spark.table.data_files import Rows
from kcl_mld.spark.table.fitting import additions, conformed, fitted
from kcl_mld.spark.table.rules import difference, misfit
from tests.unit.spark.table_kit import batch, commit, field, shard


def sink_of(path, kind, **properties):
    more = {"spark." + name.replace("__", "."): text for name, text in properties.items()}
    config = read_properties({"spark.sink": kind, "spark.sink.path": str(path), **more})
    sink = {"delta": DeltaSink, "merge": MergeSink}[kind](config, "app")
    sink.prepare(None)
    return sink


def struct(**kinds):
    return {"type": "struct", "fields": [field(name, kind) for name, kind in kinds.items()]}


def array(kind):
    return {"type": "array", "elementType": kind, "containsNull": True}


def mapped(kind):
    return {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True}


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        ("byte", "short"),
        ("short", "integer"),
        ("integer", "long"),
        ("integer", "double"),
        ("float", "double"),
        ("decimal(5,2)", "decimal(7,3)"),
        (struct(a="integer"), struct(a="long")),
        (struct(b="string"), struct(a="long", b="string")),
        (struct(b="string", a="long"), struct(a="long", b="string")),
        (struct(s=struct(a="integer")), struct(s=struct(a="long", b="date"))),
        (array("integer"), array("long")),
        (mapped("integer"), mapped("long")),
    ],
)
def test_what_holds_each_value_fits(rows, table):
    assert misfit([field("x", table)], fitted([field("x", table)], [field("x", rows)]), []) == ""


@pytest.mark.parametrize(
    ("rows", "table", "why"),
    [
        ("long", "integer", "the column x is long, but integer in the table"),
        ("long", "double", "the column x is long, but double in the table"),
        ("double", "float", "the column x is double, but float in the table"),
        ("decimal(7,2)", "decimal(7,3)", "the column x is decimal(7,2), but decimal(7,3) in"),
        ("integer", "string", "the column x is integer, but string in the table"),
        ("string", struct(a="long"), "the column x is string, but struct in the table"),
        (struct(a="string"), struct(a="long"), "the column x.a is string, but long in the table"),
        (struct(c="long"), struct(a="long"), "the table has no column x.c"),
        (struct(A="long"), struct(a="long"), "no column x.A; it has a: names differ in case"),
        (array(struct(a="long", b="long")), array(struct(a="long")), "no column x.element.b"),
        (array(struct(b="long")), array(struct(a="long", b="long")), "x.element.a is missing"),
        (
            array(struct(b="long", a="long")),
            array(struct(a="long", b="long")),
            "the fields of the column x.element have another order",
        ),
        (mapped("string"), mapped("long"), "the column x.value is string, but long in the table"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(rows, table, why):
    found = misfit([field("x", table)], fitted([field("x", table)], [field("x", rows)]), [])
    assert why in found
    assert "{" not in found
    assert difference("x", table, rows)


def test_a_field_that_may_not_be_null_is_not_made_up():
    table = [field("x", {"type": "struct", "fields": [field("a", "long", nullable=False)]})]
    assert "may have nulls" in misfit(table, fitted(table, [field("x", struct())]), [])


def test_rows_become_what_the_table_has():
    kinds = {
        "n": "integer",
        "s": struct(b="string", a="integer"),
        "tags": array("integer"),
        "same": "string",
    }
    table = [
        field("same"),
        field("n", "long"),
        field("s", struct(a="long", b="string", day="date", deep=struct(x="timestamp"))),
        field("tags", array("long")),
        field("other", "date"),
    ]
    rows = pa.table(
        {
            "n": pa.chunked_array([pa.array([1], pa.int32()), pa.array([None, 3], pa.int32())]),
            "s": pa.array(
                [{"b": "x", "a": 1}, None, {"b": None, "a": 3}],
                pa.struct([("b", pa.string()), ("a", pa.int32())]),
            ),
            "tags": pa.array([[1, None], None, []], pa.list_(pa.int32())),
            "same": pa.array(["p", "q", "r"]),
        }
    )
    fields = [field(name, kind) for name, kind in kinds.items()]
    found = conformed(Rows(rows, fields), table)
    assert found.table.column_names == ["n", "s", "tags", "same"]
    assert found.table.schema.field("n").type == pa.int64()
    assert found.table.schema.field("tags").type.value_type == pa.int64()
    nothing = {"day": None, "deep": None}
    assert found.table.to_pylist() == [
        {"n": 1, "s": {"a": 1, "b": "x", **nothing}, "tags": [1, None], "same": "p"},
        {"n": None, "s": None, "tags": None, "same": "q"},
        {"n": 3, "s": {"a": 3, "b": None, **nothing}, "tags": [], "same": "r"},
    ]
    assert misfit(table, found.fields, []) == ""
    assert conformed(found, table) is found
    assert (
        conformed(Rows(rows.slice(1), fields), table).table.to_pylist()
        == (found.table.to_pylist()[1:])
    )


def test_new_columns_are_nullable_and_differ_in_more_than_case():
    table = [field("n", "long")]
    file = [field("N", "long"), field("fee", "double", nullable=False, comment="x")]
    assert additions(table, file) == [field("fee", "double")]


def test_a_struct_gets_the_fields_that_the_rows_have_more():
    table = [field("s", struct(a="long", t=struct(x="long")))]
    rows = [field("s", struct(b="date", t=struct(x="integer", y="string")))]
    wanted = struct(a="long", t=struct(x="long", y="string"), b="date")
    assert additions(table, rows) == [field("s", wanted)]
    assert additions([field("s", wanted)], rows) == []
    assert additions([field("s", "string")], rows) == []


class Frame:
    """As Spark hands rows over."""

    def __init__(self, rows, kinds, types):
        self.fields = [field(name, kind) for name, kind in kinds.items()]
        self.table = pa.table(
            {name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()}
        )

    @property
    def schema(self):
        return self

    def json(self):
        return json.dumps({"type": "struct", "fields": self.fields})

    def toArrow(self):  # noqa: N802 - Spark's name
        return self.table


FIRST = Frame(
    [{"n": 1, "s": {"a": 1}}],
    {"n": "long", "s": struct(a="long")},
    {"n": pa.int64(), "s": pa.struct([("a", pa.int64())])},
)
LATER = Frame(
    [{"n": 2, "s": {"a": 2, "b": "x"}}],
    {"n": "integer", "s": struct(a="integer", b="string")},
    {"n": pa.int32(), "s": pa.struct([("a", pa.int32()), ("b", pa.string())])},
)


@pytest.mark.parametrize("kind", ["delta", "merge"])
def test_a_table_gets_a_field_in_a_struct_and_takes_an_int_for_a_long(tmp_path, kind):
    def put(frame, after, to, **more):
        more |= {"sink__key": "n"} if kind == "merge" else {}
        sink = sink_of(tmp_path, kind, **more)
        one = batch(shard(), after, to)
        sink.mark(one.shard)
        # ``write`` of merge has Spark compute one row a key
        staged = DeltaSink.write(sink, frame, [one])
        assert commit(sink, staged, one) == ["stands"]

    put(FIRST, 0, 1)
    with pytest.raises(
        BatchFailed, match=r"no column s\.b; .*or set spark\.sink\.schema=addColumns"
    ):
        put(LATER, 1, 2)
    put(LATER, 1, 2, sink__schema="addColumns")
    put(FIRST if kind == "delta" else LATER, 2, 3)  # rows of the older function still fit
    rows = DeltaTable(tmp_path).to_pyarrow_table().sort_by("n").to_pylist()
    first, second = {"n": 1, "s": {"a": 1, "b": None}}, {"n": 2, "s": {"a": 2, "b": "x"}}
    assert rows == ([first, first, second] if kind == "delta" else [first, second])
