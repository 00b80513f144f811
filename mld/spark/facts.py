"""What a worker's children know from their environment, and who of them may serve a shard.

kcl-mld says it in the environment of a child; under the Java daemon the properties file does
(``kcl-mld-spark --properties FILE``).
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from mld.errors import ConfigError as FileError
from mld.model.config.properties import last_of_each, parse
from mld.spark.config import from_environment
from mld.spark.errors import SparkConfigError
from mld.spark.keep_alive import TIMEOUT_KEY, interval_s
from protocol.additions import SCHEMAS_VARIABLE, capabilities

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mld.spark.model import ShardKey


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


def read_file(path: str | Path) -> dict[str, str]:
    """The properties of a daemon's file by Java's grammar; the last of a key counts.

    Raises:
        SparkConfigError: it can't be read, or Java would refuse it.
    """
    try:
        return {
            key: entry.value
            for key, entry in last_of_each(parse(Path(path).read_bytes(), str(path))).items()
        }
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
    from_file = read_file(path) if path is not None else {}
    return from_file | from_environment(environ)


class ShardGate:
    """Lets one session at a time serve a shard.

    A child that was killed leaves a batch in flight; its successor must not read the mark of the
    shard before that batch is committed or failed.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._held: set[ShardKey] = set()

    @contextmanager
    def hold(self, shard: ShardKey) -> Iterator[None]:
        """Wait until no other session holds the shard, then hold it."""
        with self._free:
            self._free.wait_for(lambda: shard not in self._held)
            self._held.add(shard)
        try:
            yield
        finally:
            with self._free:
                self._held.discard(shard)
                self._free.notify_all()
