"""How ``data`` becomes columns, and what a record does that cannot become columns.

Every decoder adds its columns beside the raw ones. Where a decoded column has the name of a raw one
(Spark compares names without case), the decoded one wins. What happens to a bad record is the
policy's: ``fail`` stops the shard and names the record, ``null`` keeps a row of nulls whose
``_corrupt`` is true, ``deadletter`` writes it elsewhere (``kcl_mld.spark.rows.app_decoder``).

``fail`` costs no second pass: the check is a filter of the plan itself. It has to be
*nondeterministic* in Spark's eyes, else the optimizer may put the function's own filter, or the
null checks that it derives from it, before the check, and a bad record would pass in silence.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kcl_mld.spark.errors import MissingPart, SparkConfigError
from kcl_mld.spark.failures import condition, describe, is_server_gone, is_session_lost
from kcl_mld.spark.rows.item_changes import CHANGE_COLUMNS, IMAGE_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from kcl_mld.spark.config import SparkConfig

#: Column of the policy ``null``: true where the decoder failed.
CORRUPT_COLUMN = "_corrupt"
#: Begins the message that a bad record raises inside Spark; shard and position follow.
BAD_RECORD = "kcl-mld: bad record"
#: Newest release of Spark's Avro; 4.2 takes it too.
AVRO_COORDINATE = "org.apache.spark:spark-avro_2.13:4.1.1"
_PACKAGES = "spark.jars.packages"
_PLACES_OF_JARS = (_PACKAGES, "spark.jars", "spark.driver.extraClassPath")
#: Names that no schema may use.
RESERVED = frozenset({CORRUPT_COLUMN})

_RAW_NAMES = (
    "data",
    "partition_key",
    "sequence_number",
    "sub_sequence_number",
    "approximate_arrival_timestamp",
    "shard_id",
    "stream_name",
)
_BAD_TEXT = "_kcl_bad_text"
_DECODED = "_kcl_decoded"
_BAD_MESSAGE = re.compile(rf"{BAD_RECORD} <([\w.-]+ at \d+\.\d+)>")
_BAD = "_kcl_bad"
#: True in what Avro could read.
_WHOLE = "_kcl_whole"


def decoder_conf(config: SparkConfig) -> dict[str, str]:
    """Spark's setting that brings the configured decoder's package into a server of our own.

    A decoder that the app names in its own code is not known before the launch.

    Args:
        config: with the user's own ``spark.conf.*``, whose packages and jars count.

    Returns:
        what replaces the setting of that name; empty if nothing is needed.
    """
    is_there = any("spark-avro" in config.conf.get(place, "") for place in _PLACES_OF_JARS)
    if not config.is_embedded or config.decoder != "avro" or is_there:
        return {}
    return {_PACKAGES: ",".join(filter(None, (config.conf.get(_PACKAGES, ""), AVRO_COORDINATE)))}


@dataclass(frozen=True, slots=True)
class Decoder:
    """What to do with ``data``.

    Attributes:
        kind: raw, json, csv, avro or dynamodb.
        schema: as Spark's function takes it; None for raw, and for dynamodb without one.
        on_error: fail, null or deadletter.
        names: of the decoded columns, in order; empty for raw.
        raw_names: of the columns that the rows have before.
    """

    kind: str
    schema: StructType | str | None
    on_error: str
    names: tuple[str, ...] = ()
    raw_names: tuple[str, ...] = _RAW_NAMES

    def apply(self, frame: DataFrame) -> DataFrame:
        """The frame that the function sees: bad records are dealt with as the policy says.

        Args:
            frame: with the raw columns, and for dynamodb those of a change.
        """
        if self.kind == "raw":
            return frame
        marked = self._marked(frame)
        if self.on_error == "deadletter":
            marked = marked.where(~_column(_BAD))
        elif self.on_error == "fail":
            marked = marked.where(_refusal())
        taken = {name.lower() for name in self.names}
        raw = [_column(name) for name in self.raw_names if name not in taken]
        decoded = [self._value(name).alias(name) for name in self.names]
        flag = [_column(_BAD).alias(CORRUPT_COLUMN)] if self.on_error == "null" else []
        return marked.select(*raw, *decoded, *flag)

    def bad_rows(self, frame: DataFrame, carried: str) -> DataFrame:
        """The raw rows that cannot be decoded, with one more column; none for raw."""
        columns = [_column(name) for name in (*self.raw_names, carried)]
        if self.kind == "raw":
            return frame.where("false").select(*columns)
        return self._marked(frame).where(_column(_BAD)).select(*columns)

    def _value(self, name: str) -> Column:
        """A decoded column; Spark fills what it could read of a bad record, which is no row."""
        value = _column(f"{_DECODED}.{_quoted(name)}")
        if self.kind == "dynamodb" and self.schema is not None and name in IMAGE_COLUMNS:
            value = value.dropFields(_BAD_TEXT)
        if self.on_error != "null":
            return value
        whole: Column = _functions().when(~_column(_BAD), value)
        return whole

    def _marked(self, frame: DataFrame) -> DataFrame:
        """With the decoded struct, and whether it is bad."""
        functions = _functions()
        # Nondeterministic, so that no filter is moved below it with another copy of it. And columns
        # are added by ``select``: for ``withColumn`` the server analyses all that is below anew.
        once = functions.when(_here(), self._struct())
        decoded = frame.select("*", once.alias(_DECODED))
        return decoded.select("*", self._is_bad().alias(_BAD))

    def _is_bad(self) -> Column:
        if self.kind == "avro":
            return _column(f"{_DECODED}.{_WHOLE}").isNull()
        if self.kind == "dynamodb":
            bad = _column("event_name").isNull()
            for name in IMAGE_COLUMNS if self.schema is not None else ():
                bad |= _column(name).isNotNull() & _is_unread(f"{_DECODED}.{name}")
            return bad
        return _is_unread(_DECODED)

    def _struct(self) -> Column:
        functions = _functions()
        if self.kind == "avro":
            return _from_avro(_column("data"), str(self.schema))
        options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _BAD_TEXT}
        if self.kind == "dynamodb":
            columns = [_column(name) for name in CHANGE_COLUMNS]
            if self.schema is not None:
                columns[1:] = [
                    functions.from_json(each, self.schema, options).alias(name)
                    for each, name in zip(columns[1:], IMAGE_COLUMNS, strict=True)
                ]
            change: Column = functions.struct(*columns)
            return change
        read = functions.from_json if self.kind == "json" else functions.from_csv
        found: Column = read(_column("data").cast("string"), self.schema, options)
        return found


def make_decoder(kind: str, schema: str | None, on_error: str, spark: SparkSession) -> Decoder:
    """Check a schema once and learn its column names.

    Args:
        kind: raw, json, csv, avro or dynamodb.
        schema: DDL for json and csv, an Avro schema in JSON for avro, DDL of the items for
            dynamodb, which needs none; not looked at for raw.
        on_error: fail, null or deadletter.
        spark: parses the DDL.

    Raises:
        SparkConfigError: there is no schema, it cannot be read, or it uses a reserved name.
        MissingPart: the server has no Avro.
    """
    if kind == "raw":
        return Decoder(kind, None, on_error)
    if not schema or not schema.strip():
        if kind == "dynamodb":
            return Decoder(kind, None, on_error, CHANGE_COLUMNS)
        raise SparkConfigError(
            f"the {kind} decoder needs a schema: run(..., schema=...) or spark.decoder.schema"
        )
    columns = None if kind == "avro" else _columns(schema, spark)
    names = _avro_names(schema) if columns is None else tuple(columns.names)
    lowered = [name.lower() for name in names]
    if reserved := sorted(RESERVED & set(lowered)):
        raise SparkConfigError(f"the schema uses the reserved name {reserved[0]!r}: choose another")
    if len(set(lowered)) < len(lowered):
        raise SparkConfigError("the schema has a name twice (Spark compares names without case)")
    if columns is None:
        _try_avro(schema, spark)
        return Decoder(kind, schema, on_error, names)
    columns = columns.add(_BAD_TEXT, "string")
    if kind == "dynamodb":
        return Decoder(kind, columns, on_error, CHANGE_COLUMNS)
    return Decoder(kind, columns if kind == "json" else _flat_ddl(columns), on_error, names)


def bad_record_in(text: str) -> str | None:
    """``<shard> at <position>`` if a failure of Spark was raised by the policy ``fail``.

    A plan that Spark prints has the words of the message too, but no shard and no position.
    """
    found = _BAD_MESSAGE.search(text)
    return None if found is None else found[1]


def _refusal() -> Column:
    """A filter that lets good rows through and ends the job at a bad one.

    ``rand()`` is at least 0, always: it is there because it makes the filter nondeterministic, and
    such a filter is neither moved nor merged with others.
    """
    functions = _functions()
    message = functions.concat(
        functions.lit(f"{BAD_RECORD} <"),
        _column("shard_id"),
        functions.lit(" at "),
        _column("sequence_number"),
        functions.lit("."),
        _column("sub_sequence_number").cast("string"),
        functions.lit(">"),
    )
    refused = functions.raise_error(message).cast("boolean")
    good: Column = functions.when(_column(_BAD) & _here(), refused).otherwise(
        functions.lit(True)  # noqa: FBT003 - a literal of Spark
    )
    return good


def _here() -> Column:
    """True, always; *nondeterministic* in Spark's eyes, and not folded as ``rand(0) >= 0`` is."""
    found: Column = _functions().spark_partition_id() >= 0
    return found


def _functions() -> Any:
    """Spark's functions; imported late, because that decides between classic and Connect."""
    from pyspark.sql import functions  # noqa: PLC0415

    return functions


def _is_unread(name: str) -> Column:
    """True where Spark could not read JSON or CSV, or not all of it."""
    return _column(name).isNull() | _column(f"{name}.{_BAD_TEXT}").isNotNull()


def _column(name: str) -> Column:
    column: Column = _functions().col(name)
    return column


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _columns(ddl: str, spark: SparkSession) -> StructType:
    """Spark's reading of a DDL; both ``a int`` and ``struct<a: int>`` are taken."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - see _functions

    try:
        return spark.createDataFrame([], schema=ddl).schema
    except (PySparkException, ValueError, TypeError, AttributeError) as error:
        if is_session_lost(error) or is_server_gone(error):
            raise
        first = str(error).strip().partition("\n")[0]
        raise SparkConfigError(f"the decoder's schema {ddl!r} is not DDL: {first}") from error


def _flat_ddl(columns: StructType) -> str:
    """The DDL of simple columns: Spark's function for CSV takes no other form."""
    return ", ".join(f"{_quoted(each.name)} {each.dataType.simpleString()}" for each in columns)


def _try_avro(schema: str, spark: SparkSession) -> None:
    """Let the server read the schema: Avro is a package of its own there."""
    from pyspark.errors import PySparkException  # noqa: PLC0415 - see _functions

    nothing = _functions().lit(None).cast("binary")
    try:
        _ = spark.range(1).select(_from_avro(nothing, schema)).schema
    except PySparkException as error:
        if is_session_lost(error) or is_server_gone(error):
            raise
        if condition(error).startswith("AVRO_NOT_LOADED"):
            raise MissingPart(
                f"the Spark server has no Avro: give it the package {AVRO_COORDINATE}, an "
                f"embedded one by spark.conf.spark.jars.packages"
            ) from error
        raise SparkConfigError(
            f"Spark can't read the decoder's schema: {describe(error)}"
        ) from error


def _from_avro(data: Column, schema: str) -> Column:
    """The decoded struct, with :data:`_WHOLE` behind the schema's own fields.

    For a bad record Spark gives a row of nulls, which a good record may be too. So it reads with
    one field more than was written: Avro fills in its default where it could read the rest.
    """
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415 - needs a jar

    reader = json.loads(schema)
    reader["fields"] = [*reader["fields"], {"name": _WHOLE, "type": "boolean", "default": True}]
    found: Column = from_avro(
        data, schema, {"mode": "PERMISSIVE", "avroSchema": json.dumps(reader)}
    )
    return found


def _avro_names(schema: str) -> tuple[str, ...]:
    try:
        found = json.loads(schema)
        return tuple(str(entry["name"]) for entry in found["fields"])
    except (ValueError, KeyError, TypeError) as error:
        raise SparkConfigError(
            "the decoder's schema is not an Avro record schema in JSON with its fields"
        ) from error
