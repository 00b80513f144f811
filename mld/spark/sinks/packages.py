"""Which jars sink and decoder need in a server that we launch. Pure.

Only for the embedded server: a cluster behind ``spark.remote`` is configured by its owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.rows.decode import AVRO_COORDINATE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.spark.config import SparkConfig

POSTGRES_COORDINATE = "org.postgresql:postgresql:42.7.7"

_PACKAGES = "spark.jars.packages"
_PLACES_OF_JARS = (_PACKAGES, "spark.jars", "spark.driver.extraClassPath")


def sinks_conf(config: SparkConfig) -> dict[str, str]:
    """What the launcher adds to Spark's configuration for the configured sink and decoder.

    A decoder that the app names in its own code is not known before the launch.

    Args:
        config: with the user's own ``spark.conf.*``, which always win.

    Returns:
        settings that replace those of the same name in ``config.conf``; empty if nothing is
        needed, or if ``spark.remote`` names a server that is not ours.
    """
    if not config.is_embedded:
        return {}
    wanted: dict[str, str] = {}
    if config.sink == "jdbc" and (config.sink_url or "").startswith("jdbc:postgresql:"):
        wanted["postgresql"] = POSTGRES_COORDINATE
    if config.decoder == "avro":
        wanted["spark-avro"] = AVRO_COORDINATE
    return _packages(config, wanted)


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
