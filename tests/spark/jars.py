"""Jars of sinks and decoders, fetched once into ``.cache/spark-jars``: ``python -m tests.spark.jars``.

They come through Maven, however that is configured where the tests run. None means that a jar is
not there and cannot be had; the test is then skipped with :data:`WHY_NOT`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "spark-jars"
WHY_NOT = "its jar is not in .cache/spark-jars and Maven cannot fetch it"

DELTA = (
    "io.delta:delta-spark_4.2_2.13:4.4.0",
    "io.delta:delta-storage:4.4.0",
    "io.delta:delta-kernel-api:4.4.0",
    "io.delta:delta-kernel-defaults:4.4.0",
    "io.delta:delta-kernel-unitycatalog:4.4.0",
)
#: The newest that Maven Central has; Spark 4.2 reads and writes Avro with it.
AVRO = ("org.apache.spark:spark-avro_2.13:4.1.1",)

#: The newest Spark that Iceberg's runtime is made for is 4.1.
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)

#: What a session needs beside the jars so that ``format("delta")`` and ``DeltaTable`` work.
DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

_POM = """<project>
<modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies>{}</dependencies></project>
"""
#: Without its own dependencies.
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version><exclusions>"
    "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
)
_FETCH_TIMEOUT_S = 300


def delta_jars() -> list[Path] | None:
    """Delta Lake for Spark 4.2; None = it cannot be had."""
    return _jars(DELTA)


def avro_jar() -> Path | None:
    """``from_avro`` and the Avro source of Spark; None = it cannot be had."""
    jars = _jars(AVRO)
    return jars[0] if jars else None


def iceberg_jar() -> Path | None:
    """Iceberg for Spark 4.1; None = it cannot be had."""
    jars = _jars(ICEBERG)
    return jars[0] if jars else None


def _jars(coordinates: tuple[str, ...]) -> list[Path] | None:
    wanted = [CACHE / _file_name(one) for one in coordinates]
    if not all(jar.exists() for jar in wanted):
        _fetch(coordinates)
    return wanted if all(jar.exists() for jar in wanted) else None


def _file_name(coordinates: str) -> str:
    _, artifact, version = coordinates.split(":")
    return f"{artifact}-{version}.jar"


def _fetch(coordinates: tuple[str, ...]) -> None:
    """Fetch just these jars; their dependencies are Spark's own or named beside them."""
    maven = shutil.which("mvn")
    if maven is None:
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        dependencies = "".join(_DEPENDENCY.format(*one.split(":")) for one in coordinates)
        Path(scratch, "pom.xml").write_text(_POM.format(dependencies))
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        try:
            subprocess.run(
                [*command, "-DexcludeTransitive=true"],
                check=True,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if sys.stderr is sys.__stderr__ else subprocess.DEVNULL,
                timeout=_FETCH_TIMEOUT_S,
            )
        except (OSError, subprocess.SubprocessError) as error:
            print(f"cannot fetch {', '.join(coordinates)}: {error}", file=sys.stderr)
            return
        for jar in Path(scratch, "lib").glob("*.jar"):
            os.replace(jar, CACHE / jar.name)  # parallel fetchers write the same bytes


if __name__ == "__main__":
    for name, found in (
        ("delta", delta_jars()),
        ("avro", avro_jar()),
    ):
        print(f"{name}: {found or 'not available'}")
