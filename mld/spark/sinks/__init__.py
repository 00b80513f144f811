"""Where the function's rows become durable.

Each sink is loaded when it is named: the JDBC sink needs a driver that others do without.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

from kcl_mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from kcl_mld.spark.config import SparkConfig
    from kcl_mld.spark.ports import Sink

_HOMES = {
    "delta": ("kcl_mld.spark.sinks.delta", "DeltaSink"),
    "outputs": ("kcl_mld.spark.sinks.outputs", "OutputsSink"),
    "merge": ("kcl_mld.spark.sinks.merge", "MergeSink"),
    "iceberg": ("kcl_mld.spark.sinks.iceberg", "IcebergSink"),
    "jdbc": ("kcl_mld.spark.sinks.jdbc", "JdbcSink"),
    "foreach": ("kcl_mld.spark.sinks.foreach", "ForeachSink"),
}


def make_sink(config: SparkConfig, application: str) -> Sink:
    """The sink that ``spark.sink`` names.

    Args:
        application: name of the KCL application, whose output it is.

    Raises:
        SparkConfigError: a property that the sink needs is missing or wrong.
        SinkRefused: the sink can't keep its promise at that place.
        MissingPart: a library that the sink needs is not installed.
    """
    if config.sink not in _HOMES:
        raise SparkConfigError(f"spark.sink={config.sink}: no such sink")
    home, name = _HOMES["outputs" if config.outputs else config.sink]
    return cast("Sink", getattr(import_module(home), name)(config, application))
