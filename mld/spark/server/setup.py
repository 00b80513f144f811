"""What an embedded server is given before it starts: its Java, its files, its environment.

What the texts say is decided in :mod:`kcl_mld.spark.server.settings`; here they are written, into a
directory that only we can read. Whether a standalone cluster's master is there is seen before:
Spark asks three times and gives up after a minute, with the traces of three exceptions.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import importlib.util
import logging
import os
import platform
import secrets
import socket
import stat
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.config.spark.addresses import addresses_of, is_local_master
from kcl_mld.config.spark.needs import REPOSITORY_VARIABLE
from kcl_mld.config.spark.places import JARS, jar_fault
from kcl_mld.spark.errors import MissingPart, SparkConfigError, SparkUnreachable
from kcl_mld.spark.server.java import find_java
from kcl_mld.spark.server.settings import (
    CONF_DIRECTORIES,
    SERVER_CLASS,
    TOKEN_VARIABLE,
    ServerFiles,
    collector,
    jvm_options,
    server_command,
    server_environment,
    server_properties,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.server.java import JavaHome

#: The first that links classes for such a file although Spark opens modules.
OLDEST_LINKING = 25
#: Options of the user's own that deal with it: ours would contradict them.
_OWN_OPTIONS = (
    *("-Xshare", "-XX:SharedArchiveFile", "-XX:ArchiveClassesAtExit", "-Xlog:cds"),
    *("-XX:DumpLoadedClassList", "-XX:SharedClassListFile", "-XX:AOT", "-Xlog:aot"),
)
_log = logging.getLogger("mld.spark")
_MIB = 1024 * 1024
_PROBE_TIMEOUT_S = 3.0
_LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="console" target="SYSTEM_ERR">
      <PatternLayout pattern="%d{{yyyy-MM-dd HH:mm:ss.SSS}} %p spark %c{{1}}: %m%n%ex{{8}}"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="{level}"><AppenderRef ref="console"/></Root>
    <Logger name="{server_class}" level="INFO"/>
    <Logger name="org.apache.hadoop.util.NativeCodeLoader" level="ERROR"/>
    <Logger name="org.apache.parquet.hadoop.MemoryManager" level="ERROR"/>
    <Logger name="org.apache.spark.util.Utils" level="ERROR"/>
{silenced}
  </Loggers>
</Configuration>
"""
#: Loggers that repeat the errors that clients get anyway, with values of the data in them.
_TALKATIVE = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.connect.utils.ErrorUtils",
)
_IVY = """\
<ivysettings>
  <settings defaultResolver="{name}"/>
  <resolvers>
    <ibiblio name="{name}" m2compatible="true"{root}/>
  </resolvers>
</ivysettings>
"""
_CGROUPS = Path("/sys/fs/cgroup")
_MEMINFO = Path("/proc/meminfo")
_OWN_GROUP = Path("/proc/self/cgroup")
#: Limit, use, and where the cache is that the kernel gives back; of versions 2 and 1.
_FILES = (
    ("memory.max", "memory.current", "inactive_file "),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """A server that only needs to be started; its files are written.

    Attributes:
        java: the Java that it runs on.
        command: line to start it with; holds nothing secret.
        environ: of the process; holds the token.
        token: what a client must present.
        archive: where Spark's classes are kept, or could be; None = nowhere.
    """

    java: JavaHome
    command: list[str]
    environ: dict[str, str] = field(repr=False)
    token: str = field(repr=False)
    archive: Path | None = None


def prepare(
    config: SparkConfig, directory: Path, environ: Mapping[str, str], *, app_name: str
) -> Setup:
    """Find Java and Spark, and write the server's files.

    The arguments are those of :meth:`kcl_mld.spark.server.launcher.EmbeddedServer.launch`.

    Raises:
        SparkConfigError: a property has no place there.
        MissingPart: there is no Java, no pyspark with a server, or a named jar is not there.
        SparkUnreachable: no master of the cluster answers.
    """
    java = find_java(config, environ)
    home = _spark_home()
    free = free_bytes()
    if free is not None and config.driver_memory_bytes > free:
        _log.warning(
            "spark.driver.memory is %d MiB, and this machine or its control group has %d MiB left: "
            "lower it, or the server may be killed",
            config.driver_memory_bytes // _MIB,
            free // _MIB,
        )
    require_master(config.master)
    files = ServerFiles.below(directory)
    repository = environ.get(REPOSITORY_VARIABLE) or None
    properties = server_properties(
        config,
        files,
        app_name=app_name,
        python=environ.get("PYSPARK_PYTHON") or sys.executable,
    )
    _require_jars(properties.get("spark.jars", ""))
    if (
        properties.get("spark.jars.packages") or repository
    ):  # else Spark would read them for nothing
        properties["spark.jars.ivySettings"] = str(files.ivy_settings)
    _write_files(files, properties, config.log_level, repository)
    class_path = [str(home / "jars" / "*")]
    class_path += [environ[name] for name in CONF_DIRECTORIES if environ.get(name)]
    archive = archive_path(config, java, class_path, environ)
    program = (java.executable, java.version)
    command = server_command(program, class_path, config, files, archive_options(archive, java))
    token = secrets.token_urlsafe(32)
    ours = {
        TOKEN_VARIABLE: token,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_DIRS": properties.get("spark.local.dir", str(files.scratch)),
        "PYSPARK_PYTHON": properties["spark.pyspark.python"],
    }
    if is_local_master(config.master):
        ours["SPARK_LOCAL_IP"] = "127.0.0.1"  # where Spark's web pages listen, if enabled
    return Setup(java, command, server_environment(environ, **ours), token, archive)


def archive_path(
    config: SparkConfig, java: JavaHome, class_path: Sequence[str], environ: Mapping[str, str]
) -> Path | None:
    """Where the classes of this Java with these jars and options are kept; None = nowhere.

    Java runs code from that file, so nobody else may be able to write it.

    Args:
        config: the options of its JVM tell one file from another.
        class_path: of the server; ``…/*`` stands for the jars of a folder.
        environ: ``XDG_CACHE_HOME`` and ``HOME`` say where caches are.
    """
    options = [*collector(config), *jvm_options(config)]
    if not config.has_class_archive or any(each.startswith(_OWN_OPTIONS) for each in options):
        return None
    if (directory := private_cache(environ)) is None:
        return None
    key = hashlib.sha256()
    for word in (str(java.path), *_facts(java.path / "release"), platform.machine(), *options):
        key.update(f"{word}\0".encode())
    for entry in class_path:
        for fact in _class_path_facts(entry):
            key.update(f"{fact}\0".encode())
    return directory / f"spark-{key.hexdigest()[:24]}.jsa"


def archive_options(path: Path | None, java: JavaHome) -> list[str]:
    """For a server's command line: to use the file, if it is there."""
    if path is None or not path.is_file():
        return []
    # Else Java warns of a file that does not fit, and of each class that it leaves out.
    quiet = ["-Xlog:aot*=off"] if java.version >= OLDEST_LINKING else []
    return [f"-XX:SharedArchiveFile={path}", "-Xshare:auto", "-Xlog:cds*=off", *quiet]


def private_cache(environ: Mapping[str, str]) -> Path | None:
    """Our directory in the user's cache, made if missing; None if it is not his alone."""
    home = environ.get("XDG_CACHE_HOME") or (
        f"{environ['HOME']}/.cache" if environ.get("HOME") else ""
    )
    if not os.path.isabs(home) or any(character in home for character in " '\"\\\n"):
        return None
    path = Path(home) / "kcl-mld" / "classes"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except OSError:
        return None
    is_private = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return path if is_private and os.access(path, os.W_OK) else None


def _class_path_facts(entry: str) -> Iterator[str]:
    """Name, size and time of whatever an entry stands for."""
    if entry.endswith("/*"):
        for jar in sorted(Path(entry[:-2]).glob("*.jar")):
            yield from _facts(jar)
    else:
        yield from _facts(Path(entry))


def _facts(path: Path) -> tuple[str, ...]:
    """Times in whole seconds, as Java compares them and layers of images keep them."""
    try:
        found = path.stat()
    except OSError:
        return (str(path),)
    return (str(path), str(found.st_size), str(int(found.st_mtime)))


def _spark_home() -> Path:
    """The installed pyspark, if it is the full package and brings the server."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise MissingPart("pyspark is missing: pip install 'kcl-mld[spark]'")
    home = Path(spec.origin).parent
    if not any((home / "jars").glob("spark-connect_*.jar")):
        raise MissingPart(
            "the installed pyspark has no server: pip install 'kcl-mld[spark]', "
            "or name an existing server in spark.remote"
        )
    return home


def _require_jars(jars: str) -> None:
    why = jar_fault(jars, lambda path: os.path.exists(path) or bool(glob.glob(path)))
    if why is not None:
        raise MissingPart(f"{JARS}: {why}: correct the path or put the jar in its place")


def _write_files(
    files: ServerFiles, properties: Mapping[str, str], level: str, repository: str | None
) -> None:
    files.scratch.mkdir(parents=True, exist_ok=True)
    _write_private(files.properties, properties_text(properties))
    _write_private(files.log4j, log4j_text(level))
    _write_private(files.ivy_settings, ivy_text(repository))


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w", encoding="utf-8") as file:
        file.write(text)


def require_master(
    master: str, connect: Callable[..., socket.socket] = socket.create_connection
) -> None:
    """Return if one of a standalone cluster's masters answers, or if it is no such cluster.

    Args:
        connect: opens a connection; takes an address and a time-out in s.

    Raises:
        SparkConfigError: the URL is none.
        SparkUnreachable: none answers within 3 s each.
    """
    failures = []
    try:
        addresses = addresses_of(master)
    except ValueError as error:
        raise SparkConfigError(f"spark.master={master} {error}") from error
    for address in addresses:
        try:
            connect(address, _PROBE_TIMEOUT_S).close()
        except OSError as error:
            failures.append(f"{address[0]}:{address[1]}: {error}")
        else:
            return
    if failures:
        raise SparkUnreachable(
            f"no Spark master answers at spark.master={master} ({'; '.join(failures)}): "
            f"start it, or correct the property"
        )


def properties_text(properties: Mapping[str, str]) -> str:
    """A Java properties file, whatever characters the values hold."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str) -> str:
    written = []
    for character in text:
        if character in " \\:=#!":
            written.append("\\" + character)
        elif " " < character <= "~":
            written.append(character)
        else:
            units = character.encode("utf-16-be")
            pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
            written.extend(f"\\u{pair}" for pair in pairs)
    return "".join(written)


def log4j_text(level: str) -> str:
    """A log configuration that writes to the standard error only.

    Failed tasks and calls are not logged, except with ``DEBUG``: their messages quote the data.
    The client gets them, and says what is fit for a log (``kcl_mld.spark.failures.describe``).
    """
    names = () if level == "DEBUG" else _TALKATIVE
    silenced = "\n".join(f'    <Logger name="{name}" level="OFF"/>' for name in names)
    return _LOG4J.format(level=level, server_class=SERVER_CLASS, silenced=silenced)


def ivy_text(repository: str | None) -> str:
    """Ivy settings with one repository, and no other before or behind it.

    Spark's own look into the local Maven cache first, which may hold a package's ``.pom`` without its
    ``.jar``: Ivy then takes it for found there, and fails.

    Args:
        repository: URL of a Maven repository; None = Maven Central, which Ivy knows by itself.
    """
    if repository is None:
        return _IVY.format(name="central", root="")
    escaped = repository.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return _IVY.format(name="named", root=f' root="{escaped.rstrip("/")}/"')


def free_bytes() -> int | None:
    """What may be taken before somebody is killed for it; None where that can't be known."""
    found = [each for each in (_machine(), *map(_group, _groups())) if each is not None]
    return min(found, default=None)


def _machine() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _groups() -> set[Path]:
    """Directories of our groups and of those above them, as far as they can be seen."""
    found = {_CGROUPS, _CGROUPS / "memory"}
    with contextlib.suppress(OSError):
        for line in _OWN_GROUP.read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds in {"", "memory"}:
                group = (_CGROUPS / kinds).joinpath(path.lstrip("/"))
                found |= {each for each in (group, *group.parents) if each.is_relative_to(_CGROUPS)}
    return found


def _group(directory: Path) -> int | None:
    for limit, used, cache in _FILES:
        with contextlib.suppress(OSError, ValueError):  # no limit is a word
            left = int((directory / limit).read_text()) - int((directory / used).read_text())
            for line in (directory / "memory.stat").read_text().splitlines():
                if line.startswith(cache):
                    left += int(line.split()[1])
            return left
    return None
