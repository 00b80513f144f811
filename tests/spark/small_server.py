"""What makes a Spark server of a test cheap: ``python -m tests.spark.small_server`` prepares it.

Loading Spark's classes is a third of what a server costs until its first job, and compiling code
for a handful of rows costs more than it saves. So the JVM compiles little, Spark interprets its
plans, and the classes come out of an archive in ``.cache`` where there is one. An archive that does
not fit the Java or the jars at hand is ignored by the JVM.
"""

from __future__ import annotations

import os
import platform
import signal
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.server.launcher import EmbeddedServer
from kcl_mld.spark.server.sessions import ConnectSessions

_CACHE = Path(__file__).resolve().parents[2] / ".cache"
ARCHIVE = _CACHE / f"spark-{version('pyspark')}-{platform.machine()}.jsa"
#: Starts fastest and needs least; slower in the long run.
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss1m"
_USE_ARCHIVE = f"-XX:SharedArchiveFile='{ARCHIVE}' -Xlog:cds=off -Xlog:cds+dynamic=off"
#: For ``spark.jvm.options``.
SMALL_JVM = f"{_JVM} {_USE_ARCHIVE}" if ARCHIVE.exists() else _JVM
#: For a properties file.
SMALL_SERVER = {
    "spark.driver.memory": "512m",
    "spark.jvm.options": SMALL_JVM,
    "spark.jvm.classArchive": "false",  # nothing goes into the developer's cache
    "spark.conf.spark.sql.shuffle.partitions": "1",
    "spark.conf.spark.default.parallelism": "1",
    "spark.conf.spark.sql.codegen.wholeStage": "false",
    "spark.conf.spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_PATIENCE_S = 180.0


def make_archive(archive: Path) -> None:
    """Run one small job on a server that writes down its classes when it ends."""
    making = archive.with_suffix(f".{os.getpid()}")
    options = f"{_JVM} -XX:ArchiveClassesAtExit='{making}' -Xlog:cds=off -Xlog:cds+dynamic=off"
    config = read_properties(
        {**SMALL_SERVER, "spark.master": "local[1]", "spark.jvm.options": options}
    )
    archive.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        server = EmbeddedServer.launch(config, Path(scratch), os.environ)
        try:
            server.wait_ready(_PATIENCE_S)
            sessions = ConnectSessions(server.url, server.token, config, "archive")
            rows = sessions.get().range(10).selectExpr("id + 1 as n")
            rows.write.parquet(str(Path(scratch) / "rows"))
            sessions.close()
            os.kill(server.pid, signal.SIGTERM)
            give_up_at = time.monotonic() + _PATIENCE_S
            while server.poll() is None and time.monotonic() < give_up_at:
                time.sleep(0.2)
        finally:
            server.stop()
    if making.exists():
        making.replace(archive)


if __name__ == "__main__":
    if not ARCHIVE.exists():
        make_archive(ARCHIVE)
    sys.exit(None if ARCHIVE.exists() else "the JVM wrote no archive")
