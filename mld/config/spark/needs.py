"""What ``spark.*`` keys need of one another, and what a server of our own does not take. Pure.

An app's code gives a decoder, its schema and what bad records do, and no other key: so whether a
schema is missing is not judged here, and everything else is. The daemon, ``validate`` and the Spark
host ask the same.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.config.spark.addresses import (
    addresses_of,
    is_local_master,
    namespaced_table,
    table_parts,
)
from kcl_mld.config.spark.keys import (
    CATALOG,
    DEFAULTS,
    DELTA_SINKS,
    FREE_PREFIXES,
    ICEBERG,
    OF_FILES,
    OUTPUTS,
    REMOTE,
)
from kcl_mld.config.spark.partitions import partition_fields
from kcl_mld.config.spark.postgres import libpq_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_SINK, _PATH, _TABLE = "spark.sink", "spark.sink.path", "spark.sink.table"
_KEY, _URL = "spark.sink.key", "spark.sink.url"
_CREATE, _PARTITIONS = "spark.sink.createTable", "spark.sink.partitionBy"
_DEADLETTER = "spark.deadletter.path"
_ON_ERROR, _LETTERS = "spark.function.onError", "spark.function.deadletter.path"
_MASTER, _JVM_OPTIONS = "spark.master", "spark.jvm.options"
_SCHEMA = "spark.decoder.schema"
_NAME_OF_FILE = re.compile(r"\S+\.(avsc|json|ddl|sql|txt)")
_CONF, _OPTIONS, _ = FREE_PREFIXES
#: Environment variable with the URL of the Maven repository that ``spark.jars.packages`` come from.
REPOSITORY_VARIABLE = "KCL_MLD_MAVEN_REPOSITORY"
#: Keys of ``spark.conf.*`` that would break a promise or have no effect, and their replacement.
REFUSED_CONF: Mapping[str, str] = {
    "spark.connect.grpc.binding.address": "the server listens on loopback only",
    "spark.connect.grpc.binding.port": "the server takes a free port",
    "spark.connect.authenticate.token": "the server draws its own token",
    "spark.driver.memory": "write it as spark.driver.memory, without conf",
    "spark.driver.extraJavaOptions": "write it as spark.jvm.options",
    "spark.driver.extraClassPath": "write it as spark.conf.spark.jars",
    "spark.jars.ivySettings": f"name the repository in the environment, {REPOSITORY_VARIABLE}",
    "spark.jars.repositories": f"name the repository in the environment, {REPOSITORY_VARIABLE}",
    "spark.master": "write it as spark.master, without conf",
    "spark.remote": "write it as spark.remote, without conf",
    "spark.submit.deployMode": "the server runs beside the workers of the daemon",
}
_REFUSED_WITH_LOCAL_MASTER: Mapping[str, str] = {
    "spark.driver.bindAddress": "with a local master everything stays on loopback",
    "spark.driver.host": "with a local master everything stays on loopback",
}


class SparkFault(NamedTuple):
    """An error in a property.

    Attributes:
        text: the error, without the key.
        advice: the remedy; empty if the text has it.
    """

    key: str
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.key} {self.text}" + (f": {self.advice}" if self.advice else "")


def effective(written: Mapping[str, str]) -> dict[str, str]:
    """Every key with its value, without blanks around it; empty for nothing.

    Args:
        written: ``spark.*`` keys of a file with their values.
    """
    return {name: (text or "").strip() for name, text in {**DEFAULTS, **written}.items()}


def need_faults(written: Mapping[str, str]) -> list[SparkFault]:
    """Everything that is wrong with keys that are right by themselves.

    Args:
        written: ``spark.*`` keys of a file with their values; absent ones have their default.
    """
    text = effective(written)
    faults = [*_missing(text), *_misplaced(text), *_schema(text)]
    if text[_SINK] == "jdbc":
        # Their blanks count, which ``effective`` drops.
        options = {
            n.removeprefix(_OPTIONS): t for n, t in written.items() if n.startswith(_OPTIONS)
        }
        faults += _fault_of(_URL, text[_URL], lambda url: libpq_connection(url, options))
        faults += _fault_of(_TABLE, text[_TABLE], table_parts)
    if text[_SINK] == ICEBERG:
        faults += _fault_of(_TABLE, text[_TABLE], namespaced_table)
        faults += _fault_of(_PARTITIONS, text[_PARTITIONS], partition_fields)
    if REMOTE in written and _MASTER in written:
        why = f"excludes {_MASTER}, and both are given"
        faults.append(SparkFault(REMOTE, why, "name one of them"))
    return faults if text[REMOTE] else [*faults, *_server(text)]


def file_faults(written: Mapping[str, str]) -> list[SparkFault]:
    """The same for the file of a user's own program, which may set more keys itself.

    Args:
        written: ``spark.*`` keys of the file with their values; absent ones have their default.
    """
    text = effective(written)
    missing = [each for each in _missing(text) if each.key in (_PATH, _DEADLETTER, _LETTERS)]
    return [*missing, *_misplaced(text), *_schema(text)]


def _missing(text: Mapping[str, str]) -> Iterator[SparkFault]:
    sink = text[_SINK]
    needs = [
        (_PATH, sink in DELTA_SINKS, f"the {sink} sink writes there", "name a directory"),
        (
            _PATH,
            sink == ICEBERG and not _has_catalog(text),
            "the iceberg sink writes there",
            f"name a directory, or a catalog by {CATALOG}type",
        ),
        (
            _TABLE,
            sink == ICEBERG,
            "the iceberg sink writes that table",
            "write namespace.name",
        ),
        (_KEY, sink == "merge", "the merge sink finds rows by it", "name the columns of the key"),
        (
            _URL,
            sink == "jdbc",
            "the jdbc sink writes to that database",
            "write jdbc:postgresql://host:port/database",
        ),
        (_TABLE, sink == "jdbc", "the jdbc sink writes there", "name a table of the database"),
        (
            _DEADLETTER,
            text["spark.decoder.onError"] == "deadletter",
            "bad records go there",
            "name a directory",
        ),
        (
            _LETTERS,
            text[_ON_ERROR] == "deadletter",
            "records go there of which the function fails",
            "name a directory",
        ),
    ]
    for key, is_needed, why, advice in needs:
        # Commas without a name between them are no columns.
        if is_needed and not text[key].strip(", "):
            yield SparkFault(key, f"is missing: {why}", advice)


def _misplaced(text: Mapping[str, str]) -> Iterator[SparkFault]:
    """What the chosen sink does not have."""
    sink = text[_SINK]
    if sink in DELTA_SINKS and text[_TABLE]:
        why = f"is for jdbc: {sink} writes its table without a catalog"
        yield SparkFault(_TABLE, why, f"take the line out; {_PATH} names the table")
    if sink != "jdbc" and text[_CREATE] == "true":
        yield SparkFault(_CREATE, f"is for jdbc; {sink} makes its table", "take the line out")
    for key in OF_FILES:
        if sink not in (*DELTA_SINKS, ICEBERG) and text[key] not in ("", DEFAULTS[key]):
            why = f"is for spark.sink=delta, merge and iceberg; {sink} has no such thing"
            yield SparkFault(key, why, "take the line out, or write such a table")
    if sink != ICEBERG and (named := next((n for n in text if n.startswith(CATALOG)), "")):
        why = f"is for spark.sink=iceberg; {sink} has no catalog"
        yield SparkFault(named, why, "take the line out")
    if sink == ICEBERG and _has_catalog(text) and text[_PATH]:
        why = f"is for a table without a catalog, and {CATALOG}* names one"
        yield SparkFault(_PATH, why, f"take the line out; {CATALOG}warehouse says where tables lie")
    if sink != "delta" and text[OUTPUTS]:
        why = f"is for spark.sink=delta; {sink} has one output"
        yield SparkFault(OUTPUTS, why, "take the line out, or write Delta tables")
    if sink == "foreach" and text[_ON_ERROR] == "deadletter":
        # It would write while its records are tried.
        why = (
            "is deadletter, which needs a sink that writes what the function returns; it is foreach"
        )
        yield SparkFault(_ON_ERROR, why, "take the line out, or choose delta, merge or jdbc")


def _has_catalog(text: Mapping[str, str]) -> bool:
    return any(name.startswith(CATALOG) for name in text)


def _schema(text: Mapping[str, str]) -> Iterator[SparkFault]:
    schema = text[_SCHEMA]
    if _NAME_OF_FILE.fullmatch(schema):
        yield SparkFault(
            _SCHEMA,
            f"{schema} is the name of a file, and the schema itself is expected",
            "write the schema here, or read the file in the app: run(..., schema=...)",
        )
    elif schema and text["spark.decoder"] == "avro":
        try:
            json.loads(schema)
        except ValueError as error:
            why = f"is no Avro schema, which is JSON: {error}"
            yield SparkFault(_SCHEMA, why, "write the schema as JSON on one line")


def _server(text: Mapping[str, str]) -> Iterator[SparkFault]:
    """What a server of our own does not take."""
    master = text[_MASTER]
    yield from _fault_of(_MASTER, master, addresses_of)
    yield from _fault_of(_JVM_OPTIONS, text[_JVM_OPTIONS], option_words)
    names = (name.removeprefix(_CONF) for name in text if name.startswith(_CONF))
    for name, instead in refused_conf(names, master):
        yield SparkFault(f"{_CONF}{name}", "is not taken", instead)


def _fault_of(key: str, text: str | None, read: Callable[[str], object]) -> Iterator[SparkFault]:
    """The fault of a value that can't be read, with the expected form; none of a missing one."""
    try:
        if text:
            read(text)
    except ValueError as error:
        yield SparkFault(key, str(error), "")


def refused_conf(names: Iterable[str], master: str) -> Iterator[tuple[str, str]]:
    """The settings that do not apply to a server of our own, each with its replacement.

    Args:
        names: of ``spark.conf.*``, without that prefix.
    """
    local = _REFUSED_WITH_LOCAL_MASTER if is_local_master(master) else {}
    refused = {**REFUSED_CONF, **local}
    return ((name, refused[name]) for name in names if name in refused)


def option_words(text: str) -> list[str]:
    """Options of a JVM as words; quotes keep blanks together, as in a shell.

    Raises:
        ValueError: a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"can't be split into words: {error}") from error
