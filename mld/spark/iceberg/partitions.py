"""Partitions of a table: as the configuration names them, and as pyiceberg does."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyiceberg.partitioning import PartitionField as IcebergField, PartitionSpec
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)

from kcl_mld.config.spark.partitions import PartitionField
from kcl_mld.spark.errors import BatchFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

_FIRST_ID = 1000
_NUMBERED = re.compile(r"(bucket|truncate)\[(\d+)\]")
#: What Spark's DDL appends to the column's name.
_SUFFIXES = {"identity": "", "truncate": "_trunc"}


def partition_spec(fields: Sequence[PartitionField], schema: Schema, name: str) -> PartitionSpec:
    """Partitions of a new table; fields have the names that Spark's DDL gives them.

    Args:
        schema: of the table, with all columns that are named.
        name: of the table, for errors.

    Raises:
        BatchFailed: a column has no type for its transform, or is named twice alike.
    """
    found: list[IcebergField] = []
    for number, field in enumerate(fields):
        column, transform = schema.find_field(field.column), _transform(field)
        if not transform.can_transform(column.field_type):
            raise BatchFailed(
                f"{name}: spark.sink.partitionBy names {field}, and the column {field.column} is "
                f"{column.field_type}, of which there is no {field.transform}"
            )
        suffix = _SUFFIXES.get(field.transform, f"_{field.transform}")
        found.append(
            IcebergField(column.field_id, _FIRST_ID + number, transform, field.column + suffix)
        )
    names = [each.name for each in found]
    if twice := [each for each in names if names.count(each) > 1]:
        raise BatchFailed(f"{name}: spark.sink.partitionBy makes two partitions {twice[0]}")
    return PartitionSpec(*found)


def _transform(field: PartitionField) -> Transform[Any, Any]:
    number = field.number or 1
    made: dict[str, Callable[[], Transform[Any, Any]]] = {
        "identity": IdentityTransform,
        "year": YearTransform,
        "month": MonthTransform,
        "day": DayTransform,
        "hour": HourTransform,
        "bucket": lambda: BucketTransform(number),
        "truncate": lambda: TruncateTransform(number),
    }
    return made[field.transform]()


def partitions_of(table: Table) -> tuple[PartitionField, ...]:
    """How a table is partitioned; dropped partitions are left out."""
    schema = table.schema()
    return tuple(
        _field(schema.find_field(each.source_id).name, str(each.transform))
        for each in table.spec().fields
        if str(each.transform) != "void"
    )


def _field(column: str, transform: str) -> PartitionField:
    if (match := _NUMBERED.fullmatch(transform)) is not None:
        return PartitionField(column, match[1], int(match[2]))
    return PartitionField(column, transform)
