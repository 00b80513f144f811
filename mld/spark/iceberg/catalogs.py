"""Where a table is found: a catalog that exists, or one of our own beside the table.

Our own is an SQLite database in the directory that has the table: for one machine, without a server.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from mld.config.spark.places import local_path
from mld.kernel.model.masking import mask
from mld.spark.errors import SinkRefused

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog

    from mld.spark.config import SparkConfig

_log = logging.getLogger("mld.spark")

#: Below ``spark.sink.catalog.``: under which name pyiceberg knows the catalog.
NAME = "name"
DEFAULT_NAME = "default"
#: In the directory of ``spark.sink.path``.
DATABASE = "catalog.db"
#: pyiceberg waits for ever unless it is told otherwise; what a catalog of the file says comes first.
_TIMEOUTS = {
    "s3.connect-timeout": "10",
    "s3.request-timeout": "60",
}
#: How often another worker may be making the same catalog.
_TIMES = 3
_LOCAL_FILES = "mld.spark.iceberg.local_files.LocalFiles"
#: How long a worker waits for another one that writes the database, in s.
_DATABASE_S = "30"


def open_catalog(config: SparkConfig) -> Catalog:
    """The catalog that the configuration names.

    Raises:
        SinkRefused: it can't be opened.
    """
    if config.sink_catalog:
        return _named(config.sink_catalog)
    assert config.sink_path is not None  # see ``config.require_places``
    path = local_path(config.sink_path)
    assert path is not None  # as above
    return _embedded(os.path.abspath(path))


def _embedded(path: str) -> Catalog:
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - an extra of pyiceberg
    from sqlalchemy import URL  # noqa: PLC0415 - comes with it

    if odd := sorted(set(path) & set("?#%")):
        raise SinkRefused(f"spark.sink.path={path} has {odd[0]} in it: name another directory")
    url = URL.create("sqlite", database=f"{path}/{DATABASE}", query={"timeout": _DATABASE_S})
    last: Exception | None = None
    for _ in range(_TIMES):
        try:
            os.makedirs(path, exist_ok=True)
            return SqlCatalog(
                DEFAULT_NAME,
                uri=url.render_as_string(),
                warehouse=f"file://{path}",
                **{"py-io-impl": _LOCAL_FILES},
            )
        except Exception as error:  # noqa: BLE001 - another worker may be making it right now
            last = error
    raise SinkRefused(f"spark.sink.path={path} can't be written: {last}") from last


def _named(given: Mapping[str, str]) -> Catalog:
    from pyiceberg.catalog import load_catalog  # noqa: PLC0415 - takes half a second

    properties = {**_TIMEOUTS, **given}
    name = properties.pop(NAME, DEFAULT_NAME)
    try:
        return load_catalog(name, **properties)
    except Exception as error:  # noqa: BLE001 - whatever a catalog's library may raise
        raise SinkRefused(
            f"spark.sink.catalog.*: the catalog can't be opened: {mask(str(error))}"
        ) from None
