"""What an app registered."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from mld.spark.batch_context import BatchContext


@dataclass(frozen=True)
class Pipeline:
    """What an app registered.

    Attributes:
        function: called once a batch, for all shards.
        schema: columns of the decoded data as DDL, or an Avro schema in JSON; None = the
            property ``spark.decoder.schema``.
        decoder: ``raw``, ``json``, ``csv`` or ``avro``; None = the property ``spark.decoder``.
        on_error: ``fail``, ``null`` or ``deadletter``; None = the property ``spark.decoder.onError``.
        is_rowwise: the function treats each record by itself.
    """

    function: Callable[[DataFrame, BatchContext], DataFrame | None]
    schema: str | None = None
    decoder: str | None = None
    on_error: str | None = None
    is_rowwise: bool = False
