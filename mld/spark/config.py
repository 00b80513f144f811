"""The ``spark.*`` properties as values, what else a child knows, and where both come from.

kcl-mld hands them to its children in ``KCL_MLD_SPARK`` (JSON, key to text). Under the Java daemon,
which drops them, ``kcl-mld-spark --properties FILE app.py`` reads the same file itself. The names of
application, stream and shard are in the environment, or in that file.
"""

from __future__ import annotations

import difflib
import json
import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kcl_mld.config.keys import readers_of
from kcl_mld.config.overrides import overrides_of
from kcl_mld.config.properties import last_of_each
from kcl_mld.config.spark.keys import BY_NAME, FREE_PREFIXES, SparkValues, check, is_known
from kcl_mld.config.spark.places import PathChecks, local_path, spark_faults
from kcl_mld.errors import ConfigError as FileError
from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.keep_alive import TIMEOUT_KEY, interval_s
from kcl_mld_protocol.additions import SCHEMAS_VARIABLE, capabilities

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Environment variable with the ``spark.*`` properties as a JSON object.
PROPERTIES_VARIABLE = "KCL_MLD_SPARK"
_CHECKS = PathChecks(
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
class SparkConfig(SparkValues):
    """The ``spark.*`` properties of a child.

    What the keys name together, and on this machine, is looked at by :func:`require_places`.

    Attributes:
        conf: settings for Spark itself, ``sink_options`` for the writer of the sink, and
            ``sink_catalog`` for the catalog of an Iceberg table.
        texts: all keys as they are written.
    """

    conf: Mapping[str, str] = field(default_factory=dict)
    sink_options: Mapping[str, str] = field(default_factory=dict)
    sink_catalog: Mapping[str, str] = field(default_factory=dict)
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
    values: dict[str, Any] = {
        name: read(ours.get(key.name, key.default)) for name, key, read in readers_of(SparkConfig)
    }
    conf, sink_options, catalog = (_below(prefix, ours) for prefix in FREE_PREFIXES)
    return SparkConfig(
        **values, conf=conf, sink_options=sink_options, sink_catalog=catalog, texts=ours
    )


def _below(prefix: str, ours: Mapping[str, str]) -> dict[str, str]:
    return {n.removeprefix(prefix): text for n, text in ours.items() if n.startswith(prefix)}


def require_places(config: SparkConfig) -> None:
    """See that the keys fit together, and that their paths can be used on this machine.

    Raises:
        SparkConfigError: something can't; the message names each key.
    """
    if faults := spark_faults(config.texts, os.getcwd(), _CHECKS):
        raise SparkConfigError("; ".join(map(str, faults)))


def rooted(config: SparkConfig, folder: str) -> SparkConfig:
    """The same with absolute directories: an app may change its working directory.

    Args:
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
    return f" (what is meant for Spark itself goes below {FREE_PREFIXES[0]})"


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


def read_file(path: str | Path, environ: Mapping[str, str]) -> dict[str, str]:
    """The properties of a daemon's file by Java's grammar; the last of a key counts.

    Args:
        environ: may set properties and have variables put in, as for the daemon.

    Raises:
        SparkConfigError: it can't be read, Java would refuse it, or a variable is missing.
    """
    try:
        entries = overrides_of(environ).entries(Path(path).read_bytes(), str(path))
        return {key: entry.value for key, entry in last_of_each(entries).items()}
    except OSError as error:
        raise SparkConfigError(
            f"the properties file {path} can't be read: {error.strerror}"
        ) from error
    except FileError as error:
        raise SparkConfigError(str(error)) from error


def gather_properties(environ: Mapping[str, str], path: str | None) -> dict[str, str]:
    """All properties a child gets: those of the file, above them those from the daemon.

    Raises:
        SparkConfigError: the file or the variable is wrong.
    """
    from_file = read_file(path, environ) if path is not None else {}
    return from_file | from_environment(environ)


@dataclass(frozen=True, slots=True)
class Facts:
    """Where a child works.

    Attributes:
        application: name of the KCL application.
        stream: name of the stream.
        capabilities: what the daemon can do beyond the protocol: ``tick``.
        shard_id: of the child; None under a daemon that tells it in ``initialize`` only.
        has_schemas: the daemon has a schema registry.
        keep_alive_s: how often a keep-alive is due while a status is withheld, in s.
    """

    application: str
    stream: str
    capabilities: frozenset[str] = frozenset()
    shard_id: str | None = None
    keep_alive_s: float = 1.0
    has_schemas: bool = False

    @classmethod
    def gather(cls, environ: Mapping[str, str], properties: Mapping[str, str]) -> Self:
        """Take each fact from the environment, else from the file.

        Args:
            properties: of the file, or empty.

        Raises:
            SparkConfigError: application or stream are named nowhere.
        """
        application = environ.get("KCL_APPLICATION_NAME") or properties.get("applicationName")
        stream = environ.get("KCL_STREAM_NAME") or properties.get("streamName")
        if not application or not stream:
            missing = "applicationName" if not application else "streamName"
            raise SparkConfigError(
                f"{missing} is not known: kcl-mld tells it its children; under another daemon "
                f"write kcl-mld-spark --properties FILE app.py with the daemon's own file"
            )
        return cls(
            application.strip(),
            stream.strip(),
            capabilities(environ),
            environ.get("KCL_SHARD_ID") or None,
            interval_s(environ, properties.get(TIMEOUT_KEY)),
            SCHEMAS_VARIABLE in environ,
        )

    def of_child(self, environ: Mapping[str, str]) -> Facts:
        """The facts of another child of the worker, which may serve another stream."""
        stream = environ.get("KCL_STREAM_NAME") or self.stream
        return replace(self, stream=stream, shard_id=environ.get("KCL_SHARD_ID") or None)
