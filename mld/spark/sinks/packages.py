"""Which jars and settings sink and decoder need in a server that we launch. Pure.

Only for the embedded server: a cluster behind ``spark.remote`` is configured by its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.rows.decode import AVRO_COORDINATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.spark.config import SparkConfig

#: Newest release with jars for Spark 4.0 to 4.2; the Scala version is the one Spark 4 is built with.
DELTA_VERSION = "4.4.0"
POSTGRES_COORDINATE = "org.postgresql:postgresql:42.7.7"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
DELTA_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"

_PACKAGES = "spark.jars.packages"
_EXTENSIONS = "spark.sql.extensions"
_CATALOG = "spark.sql.catalog.spark_catalog"
#: Delta computes a table's state with 50 tasks by default: seconds per commit on two cores.
_SNAPSHOT_PARTITIONS = "spark.databricks.delta.snapshotPartitions"
_PLACES_OF_JARS = (_PACKAGES, "spark.jars", "spark.driver.extraClassPath")


def delta_coordinate(spark_version: str) -> str:
    """The Maven coordinate of Delta for a version of Spark (``4.2.1``)."""
    minor = ".".join(spark_version.split(".")[:2])
    return f"io.delta:delta-spark_{minor}_2.13:{DELTA_VERSION}"


def sinks_conf(config: SparkConfig, spark_version: str) -> dict[str, str]:
    """What the launcher adds to Spark's configuration for the configured sink and decoder.

    A decoder that the app names in its own code is not known before the launch.

    Args:
        config: with the user's own ``spark.conf.*``, which always win.
        spark_version: of the server, e.g. ``4.2.1``.

    Returns:
        settings that replace those of the same name in ``config.conf``; empty if nothing is
        needed, or if ``spark.remote`` names a server that is not ours.
    """
    if not config.is_embedded:
        return {}
    wanted: dict[str, str] = {}
    is_delta = config.sink == "merge"  # the delta sink writes plain Parquet, and its own log
    if is_delta:
        wanted["delta-spark"] = delta_coordinate(spark_version)
    elif config.sink == "jdbc" and (config.sink_url or "").startswith("jdbc:postgresql:"):
        wanted["postgresql"] = POSTGRES_COORDINATE
    if config.decoder == "avro":
        wanted["spark-avro"] = AVRO_COORDINATE
    return {**_packages(config, wanted), **(_delta(config) if is_delta else {})}


def _delta(config: SparkConfig) -> dict[str, str]:
    conf: dict[str, str] = {}
    named = config.conf.get(_EXTENSIONS, "")
    if DELTA_EXTENSION not in named:
        conf[_EXTENSIONS] = ",".join(filter(None, (named, DELTA_EXTENSION)))
    if _CATALOG not in config.conf:
        conf[_CATALOG] = DELTA_CATALOG
    if config.master.startswith("local") and _SNAPSHOT_PARTITIONS not in config.conf:
        conf[_SNAPSHOT_PARTITIONS] = "2"
    return conf


def _packages(config: SparkConfig, wanted: Mapping[str, str]) -> dict[str, str]:
    """The coordinates beside the user's packages, but for those whose word a jar's name has."""
    places = [config.conf.get(place, "") for place in _PLACES_OF_JARS]
    missing = [
        coordinate
        for word, coordinate in wanted.items()
        if not any(word in place for place in places)
    ]
    if not missing:
        return {}
    return {_PACKAGES: ",".join(filter(None, (config.conf.get(_PACKAGES, ""), *missing)))}
