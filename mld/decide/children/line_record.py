"""One record of a ``processRecords`` line: the order of the fields is that of the wire."""

from __future__ import annotations

import msgspec


class LineRecord(msgspec.Struct, gc=False, rename="camel"):
    """What every child gets of a record; names in camel case."""

    data: str | None
    partition_key: str | None
    sequence_number: str
    approximate_arrival_timestamp: int | None
    sub_sequence_number: int = 0
    action: str = "record"


class SchemaLineRecord(LineRecord, gc=False, rename="camel"):
    """With the schema of an unframed payload.

    The keys are flat texts: kclpy dies of an object within a record that has no ``action``.
    """

    schema_version_id: str = ""
    schema_name: str = ""
    data_format: str = ""
