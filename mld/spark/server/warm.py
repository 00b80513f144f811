"""``kcl-mld-spark warm``: Spark's classes, read and verified once and mapped into memory by later servers.

A third of the CPU that a server costs until its first job goes into loading classes. Java's
class-data sharing keeps them in a file in the user's own cache directory. It is made by a command,
for an image's build: a server lists the classes that it loads in a few jobs, and a second Java,
which runs nothing, makes the file of the list. Without the file a server starts as any other. Java
ignores one that does not fit.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.spark.config import gather_properties, read_properties
from kcl_mld.spark.errors import SparkChildError, SparkConfigError, SparkUnreachable
from kcl_mld.spark.server.launcher import EmbeddedServer
from kcl_mld.spark.server.settings import SUBMIT_CLASS
from kcl_mld.spark.server.setup import OLDEST_LINKING, prepare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from kcl_mld.spark.config import SparkConfig

_CREATE_S = 600.0
_KEPT_CHARACTERS = 300


def main(argv: Sequence[str]) -> int:
    """Run the command.

    Returns:
        exit code: 0, or that of an error of :mod:`kcl_mld.spark.errors`.
    """
    parser = argparse.ArgumentParser(
        "kcl-mld-spark warm",
        description="Keep the classes of the Spark server in a file, so that later starts are faster.",
    )
    parser.add_argument("-p", "--properties", metavar="FILE", help="the daemon's properties file")
    options = parser.parse_args(argv[1:])
    try:
        config = read_properties(gather_properties(os.environ, options.properties))
        sys.stdout.write(f"{warm(config, os.environ)}\n")
    except SparkChildError as error:
        sys.stderr.write(f"kcl-mld-spark warm: {error}\n")
        return error.exit_code
    return 0


def warm(config: SparkConfig, environ: Mapping[str, str]) -> str:
    """Make the file for the configured server; what was done.

    Raises:
        SparkConfigError: such a server takes no file of ours.
        MissingPart: there is no Java or no pyspark with a server.
        SparkUnreachable: the server does not start, or Java makes no file.
    """
    if not config.is_embedded or not config.has_class_archive:
        raise SparkConfigError(
            "spark.remote names a server that is not ours, or spark.jvm.classArchive is false"
        )
    with tempfile.TemporaryDirectory(prefix="kcl-mld-warm-") as name:
        folder = Path(name)
        for each in ("java", "server"):
            (folder / each).mkdir(mode=0o700)
        setup = prepare(config, folder / "java", environ, app_name="warm")
        if (path := setup.archive) is None:
            raise SparkConfigError(
                "spark.jvm.options deals with such a file already, or no directory in XDG_CACHE_HOME "
                "or HOME is this user's alone"
            )
        if path.is_file():
            return f"{path} is there; remove it to have it made anew"
        listed = folder / "classes.list"
        _list_classes(config, folder / "server", environ, listed)
        java = setup.command[: setup.command.index(SUBMIT_CLASS)]
        return _make(java, listed, path, links=setup.java.version >= OLDEST_LINKING)


def _list_classes(
    config: SparkConfig, directory: Path, environ: Mapping[str, str], listed: Path
) -> None:
    """Have a server list the classes that it loads until it has done some jobs."""
    from kcl_mld.spark.server.sessions import ConnectSessions  # noqa: PLC0415 - imports pyspark

    options = f"{config.jvm_options or ''} -XX:DumpLoadedClassList='{listed}' -Xlog:cds*=off"
    listing = replace(config, jvm_options=options, has_class_archive=False)
    server = EmbeddedServer.launch(listing, directory, environ, app_name="warm")
    try:
        server.wait_ready(config.start_timeout_s)
        sessions = ConnectSessions(server.url, server.token, listing, "warm")
        try:
            _run_jobs(sessions.get(), directory)
        finally:
            sessions.close()
    finally:
        server.stop()


def _run_jobs(spark: SparkSession, directory: Path) -> None:
    """What the jobs of most functions load: rows by a file and inline, JSON, an aggregate."""
    import pyarrow as pa  # noqa: PLC0415 - not for every server
    import pyarrow.parquet as pq  # noqa: PLC0415

    rows = pa.table({"data": [b'{"a": 1, "b": "x", "c": "2026-01-01T00:00:00Z"}'] * 8})
    file = directory / "rows.parquet"
    pq.write_table(rows, file)
    schema = "a BIGINT, b STRING, c TIMESTAMP"
    for frame in (spark.createDataFrame(rows), spark.read.parquet(str(file))):
        decoded = frame.selectExpr(f"from_json(cast(data AS STRING), '{schema}') AS j")
        plain = decoded.selectExpr("j.*").where("a > 0")
        plain.toArrow()
        plain.groupBy("b").agg({"a": "sum", "c": "max"}).toArrow()


def _make(java: Sequence[str], listed: Path, path: Path, *, links: bool) -> str:
    """Make the file of the list; what was done.

    Raises:
        SparkUnreachable: Java makes none.
    """
    making = path.with_suffix(f".{os.getpid()}")
    program, *options = java
    command = [
        *(program, "-Xshare:dump", *(("-XX:+AOTClassLinking",) if links else ())),
        f"-XX:SharedClassListFile={listed}",
        f"-XX:SharedArchiveFile={making}",
        *("-Xlog:disable", *options),
    ]
    try:
        done = subprocess.run(  # noqa: S603 - our command
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_CREATE_S,
            check=False,
        )
        if done.returncode or not making.is_file():
            output = done.stdout.decode(errors="replace").strip()[-_KEPT_CHARACTERS:]
            raise SparkUnreachable(f"Java makes no file (exit code {done.returncode}): {output}")
        making.chmod(0o600)
        making.replace(path)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SparkUnreachable(f"Java makes no file: {error}") from error
    finally:
        making.unlink(missing_ok=True)
    return f"{path}: {path.stat().st_size // 1024**2} MiB; the next start is faster"
