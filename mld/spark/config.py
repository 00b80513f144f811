"""The ``spark.*`` properties as values, and where they come from.

kcl-mld hands them to its children in ``KCL_MLD_SPARK`` (JSON, key to text). Under the Java daemon,
which drops them, ``kcl-mld-spark --properties FILE app.py`` reads the same file itself.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mld.model.spark.keys import (
    BY_NAME,
    FREE_PREFIXES,
    check,
    duration_s,
    is_known,
    output_names,
    size_bytes,
    whole_number,
)
from mld.model.spark.places import Look, local_path, spark_faults
from mld.model.spark.s3_place import is_s3
from mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Environment variable with the ``spark.*`` properties as a JSON object.
PROPERTIES_VARIABLE = "KCL_MLD_SPARK"
_CONF_PREFIX, _OPTIONS_PREFIX = FREE_PREFIXES
_LOOK = Look(
    os.path.lexists,
    os.path.isdir,
    lambda path: os.access(path, os.W_OK | os.X_OK),
    os.path.realpath,
    lambda path: os.listdir(path) if os.access(path, os.R_OK) else [],
)
_LOCAL_MASTER = re.compile(r"local(?:\[(\*|\d+)[^]]*\])?")
#: Beyond this a name is no slip of the pen, and comparing takes long.
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkConfig:
    """Effective values; see ``mld.model.spark.keys`` for what each means. Sizes in bytes, times in s.

    What the keys name together, and on this machine, is looked at by :func:`require_places`.
    """

    remote: str | None
    token_variable: str | None
    master: str
    java_home: str | None
    driver_memory_bytes: int
    jvm_options: str | None
    has_class_archive: bool
    start_timeout_s: float
    max_records: int
    max_bytes: int
    max_delay_s: float
    coalesce_window_s: float
    batch_timeout_s: float
    attempts: int
    sink: str
    sink_path: str | None
    sink_table: str | None
    creates_table: bool
    partition_by: tuple[str, ...]
    outputs: tuple[str, ...]
    adds_columns: bool
    sink_key: tuple[str, ...]
    sink_mode: str
    sink_url: str | None
    epoch: str
    decoder: str
    decoder_schema: str | None
    on_error: str
    deadletter_path: str | None
    sets_aside: bool
    letters_path: str | None
    linger_s: float
    log_level: str
    conf: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_embedded(self) -> bool:
        """True if we launch the server ourselves."""
        return self.remote is None

    @property
    def local_cores(self) -> int:
        """How many tasks run at a time in a server of our own on this machine; 0 = elsewhere."""
        match = _LOCAL_MASTER.fullmatch(self.master) if self.is_embedded else None
        if match is None:
            return 0
        return os.cpu_count() or 1 if match[1] == "*" else max(1, int(match[1] or 1))

    @property
    def uses_s3(self) -> bool:
        """True if something is written to S3."""
        paths = (self.sink_path, self.letters_path, self.deadletter_path)
        return any(path is not None and is_s3(path) for path in paths)


def read_properties(properties: Mapping[str, str]) -> SparkConfig:
    """Turn texts into values.

    Args:
        properties: keys that begin with ``spark.``; others are not looked at.

    Raises:
        SparkConfigError: a key is unknown, or a value is wrong by itself.
    """
    ours = {name: text for name, text in properties.items() if name.startswith("spark.")}
    for name, text in ours.items():
        if not is_known(name):
            raise SparkConfigError(f"{name}: no such property{_advice(name)}")
        if (why := check(name, text)) is not None:
            raise SparkConfigError(f"{name}: {why}")
    return _config(_Texts(ours))


def require_places(config: SparkConfig) -> None:
    """See that the keys fit together, and that their paths can be used on this machine.

    Raises:
        SparkConfigError: something can't; the message names each key.
    """
    if faults := spark_faults(config.texts, os.getcwd(), _LOOK):
        raise SparkConfigError("; ".join(map(str, faults)))


def rooted(config: SparkConfig, folder: str) -> SparkConfig:
    """The same with absolute directories: an app may change its working directory.

    Args:
        config: as it was read.
        folder: working directory at the start.
    """
    return replace(
        config,
        sink_path=_rooted(config.sink_path, folder),
        letters_path=_rooted(config.letters_path, folder),
    )


def _rooted(text: str | None, folder: str) -> str | None:
    if text is None or local_path(text) != text:
        return text  # a URL
    return os.path.join(folder, text)


def _advice(name: str) -> str:
    """What may be meant by a name that is unknown."""
    close = difflib.get_close_matches(name[:_LONGEST_NAME], BY_NAME, n=1, cutoff=0.75)
    if close:
        return f" (did you mean {close[0]}?)"
    return f" (what is meant for Spark itself goes below {_CONF_PREFIX})"


class _Texts:
    """The texts by short name, defaults included."""

    def __init__(self, ours: Mapping[str, str]) -> None:
        self.ours = ours

    def optional(self, name: str) -> str | None:
        full = f"spark.{name}"
        text = self.ours.get(full, BY_NAME[full].default)
        return None if text is None else text.strip() or None

    def text(self, name: str) -> str:
        return self.optional(name) or ""

    def words(self, name: str) -> tuple[str, ...]:
        return tuple(word.strip() for word in self.text(name).split(",") if word.strip())

    def below(self, prefix: str) -> dict[str, str]:
        return {
            name.removeprefix(prefix): text
            for name, text in self.ours.items()
            if name.startswith(prefix)
        }


def _config(texts: _Texts) -> SparkConfig:
    return SparkConfig(
        remote=texts.optional("remote"),
        token_variable=texts.optional("remote.token.env"),
        master=texts.text("master"),
        java_home=texts.optional("java.home"),
        driver_memory_bytes=size_bytes(texts.text("driver.memory")),
        jvm_options=texts.optional("jvm.options"),
        has_class_archive=texts.text("jvm.classArchive") == "true",
        start_timeout_s=duration_s(texts.text("start.timeout")),
        max_records=whole_number(texts.text("batch.maxRecords")),
        max_bytes=size_bytes(texts.text("batch.maxBytes")),
        max_delay_s=duration_s(texts.text("batch.maxDelay")),
        coalesce_window_s=duration_s(texts.text("batch.coalesceWindow")),
        batch_timeout_s=duration_s(texts.text("batch.timeout")),
        attempts=whole_number(texts.text("retry.attempts")),
        sink=texts.text("sink"),
        sink_path=texts.optional("sink.path"),
        sink_table=texts.optional("sink.table"),
        creates_table=texts.text("sink.createTable") == "true",
        partition_by=texts.words("sink.partitionBy"),
        outputs=output_names(texts.text("sink.outputs")),
        adds_columns=texts.text("sink.schema") == "addColumns",
        sink_key=texts.words("sink.key"),
        sink_mode=texts.text("sink.mode"),
        sink_url=texts.optional("sink.url"),
        epoch=texts.text("sink.epoch"),
        decoder=texts.text("decoder"),
        decoder_schema=texts.optional("decoder.schema"),
        on_error=texts.text("decoder.onError"),
        deadletter_path=texts.optional("deadletter.path"),
        sets_aside=texts.text("function.onError") == "deadletter",
        letters_path=texts.optional("function.deadletter.path"),
        linger_s=duration_s(texts.text("host.linger")),
        log_level=texts.text("log.level"),
        conf=texts.below(_CONF_PREFIX),
        sink_options=texts.below(_OPTIONS_PREFIX),
        texts=texts.ours,
    )


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The properties that the daemon handed over; empty if it handed none.

    Raises:
        SparkConfigError: the variable is not a JSON object of texts.
    """
    try:
        found = json.loads(environ.get(PROPERTIES_VARIABLE, "{}"))
    except ValueError as error:
        raise SparkConfigError(f"{PROPERTIES_VARIABLE} is not JSON: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise SparkConfigError(f"{PROPERTIES_VARIABLE} is not a JSON object of texts")
    return found
