"""A stream's records through Spark, exactly once: what an app imports.

An app is a program that ends in :func:`run`; the daemon starts it with
``executableName = kcl-mld-spark app.py``::

    from kcl_mld.spark import run

    def process(df, ctx):
        return df.where("amount > 0")

    run(process, schema="user string, amount double", decoder="json")

Names are loaded when they are asked for: the relay stub of a shard imports this package too, and
must stay small.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcl_mld.spark.batch_context import BatchContext
    from kcl_mld.spark.model import Position
    from kcl_mld.spark.registration import run
    from kcl_mld_protocol.child import schema_definition

__all__ = [
    "BatchContext",
    "Position",
    "run",
    "schema_definition",
]

_HOMES = {
    "BatchContext": "kcl_mld.spark.batch_context",
    "Position": "kcl_mld.spark.model",
    "run": "kcl_mld.spark.registration",
    "schema_definition": "kcl_mld_protocol.child",
}


def __getattr__(name: str) -> Any:
    """Load a public name from its module.

    Raises:
        AttributeError: there is no such name.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
