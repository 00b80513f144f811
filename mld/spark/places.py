"""Directories and schema of a file, looked at before a server is started."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mld.model.spark_places import Look, place_faults
from mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from mld.spark.config import SparkConfig

_LOOK = Look(os.path.lexists, os.path.isdir, lambda path: os.access(path, os.W_OK | os.X_OK))


def require_places(config: SparkConfig) -> None:
    """See whether everything that the file names on this machine can be used.

    Raises:
        SparkConfigError: something can't; the message names each key.
    """
    texts = {
        "spark.remote": config.remote,
        "spark.sink": config.sink,
        "spark.sink.path": config.sink_path,
        "spark.sink.table": config.sink_table,
        "spark.decoder": config.decoder,
        "spark.decoder.schema": config.decoder_schema,
        "spark.decoder.onError": config.on_error,
        "spark.deadletter.path": config.deadletter_path,
        "spark.function.onError": "deadletter" if config.sets_aside else "fail",
        "spark.function.deadletter.path": config.letters_path,
    }
    if faults := place_faults(texts, os.getcwd(), _LOOK):
        told = (f"{fault.key} {fault.text}: {fault.advice}" for fault in faults)
        raise SparkConfigError("; ".join(told))
