"""Where a table is found: a catalog that exists, or one of our own beside the table.

Our own is an SQLite database in the directory that has the table: for one machine, without a server.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from kcl_mld.config.spark.places import local_path
from kcl_mld.kernel.model.masking import mask
from kcl_mld.spark.errors import SinkRefused
from kcl_mld.spark.iceberg.s3_files import UNDERSTOOD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog

    from kcl_mld.spark.config import SparkConfig

_log = logging.getLogger("mld.spark")

#: Below ``spark.sink.catalog.``: under which name pyiceberg knows the catalog.
NAME = "name"
DEFAULT_NAME = "default"
#: In the directory of ``spark.sink.path``.
DATABASE = "catalog.db"
#: Of pyarrow's client, which waits for ever without them; what a catalog of the file says comes first.
_TIMEOUTS = {
    "s3.connect-timeout": "10",
    "s3.request-timeout": "60",
}
#: Below ``spark.sink.catalog.``: who reads and writes files.
_FILES = "py-io-impl"
_SESSION = "botocore_session"
_OUR_FILES = "kcl_mld.spark.iceberg.s3_files.TableFiles"
#: Of requests that botocore makes for a catalog, in s.
_CONNECT_S, _READ_S = 5, 30
#: How often another worker may be making the same catalog.
_TIMES = 3
_LOCAL_FILES = "kcl_mld.spark.iceberg.local_files.LocalFiles"
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

    properties: dict[str, Any] = {**_TIMEOUTS, **given}
    name = properties.pop(NAME, DEFAULT_NAME)
    if not any(each == _FILES or _is_of_pyarrow(each) for each in given):
        properties[_FILES] = _OUR_FILES
    try:
        return load_catalog(name, **{_SESSION: _aws_session(), **properties})
    except Exception as error:  # noqa: BLE001 - whatever a catalog's library may raise
        raise SinkRefused(
            f"spark.sink.catalog.*: the catalog can't be opened: {mask(str(error))}"
        ) from None


def _is_of_pyarrow(key: str) -> bool:
    """Whether a key asks for more than our own files of S3 know, such as a proxy or a role."""
    return key.startswith("s3.") and key not in UNDERSTOOD


def _aws_session() -> Any:
    """For Glue, and for REST where it is signed: its requests end, and its chain is boto3's."""
    import botocore.session  # noqa: PLC0415 - slow to import
    from botocore.config import Config  # noqa: PLC0415

    session = botocore.session.get_session()
    session.set_default_client_config(Config(connect_timeout=_CONNECT_S, read_timeout=_READ_S))
    return session
