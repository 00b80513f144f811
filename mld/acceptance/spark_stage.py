"""PySpark children write every record once: into a Delta table in S3, and into Iceberg by Glue."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kcl_mld.acceptance.options import Options
    from kcl_mld.acceptance.resources import Resources

#: What a plain installation lacks.
_PACKAGES = ("pyspark", "deltalake", "pyiceberg")
#: The user's program, and its file beside the workers' folders.
APP_FILE = "spark_app.py"
APP = """\
from kcl_mld.spark import run


def process(df, ctx):
    return df.select("k", "n")


run(process, schema="k string, n long", decoder="json")
"""
DELTA, ICEBERG = "delta", "iceberg"
_ICEBERG_TABLE = "records"


def missing_packages() -> tuple[str, ...]:
    """What the stage needs and is not installed: extras ``spark`` and ``iceberg``."""
    return tuple(name for name in _PACKAGES if importlib.util.find_spec(name) is None)


class SparkTables:
    """The two tables of a run, and what stands in them.

    Args:
        resources: of a run with a bucket.
    """

    def __init__(self, options: Options, resources: Resources) -> None:
        self._region = options.region
        self._prefix = f"s3://{options.bucket}/{options.run_name}"
        self._database = options.names.glue_database
        self._credentials = resources.credentials
        #: Sink -> application.
        self.applications = {
            DELTA: options.names.spark_delta_application,
            ICEBERG: options.names.spark_iceberg_application,
        }

    def properties(self, sink: str) -> dict[str, str]:
        """Of the worker whose children write into that table."""
        common = {
            "executableName": f"{sys.executable} ../{APP_FILE}",
            "retrievalMode": "POLLING",
            "spark.master": "local[2]",
            "spark.batch.maxDelay": "1s",
            "spark.jvm.options": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        if sink == DELTA:
            return common | {"spark.sink.path": f"{self._prefix}/{DELTA}"}
        return common | {
            "spark.sink": ICEBERG,
            "spark.sink.table": f"{self._database}.{_ICEBERG_TABLE}",
            "spark.sink.catalog.type": "glue",
            "spark.sink.catalog.warehouse": f"{self._prefix}/{ICEBERG}",
        }

    def rows(self, sink: str) -> list[tuple[str, int]]:
        """Key and number of each row, in any order; none before the table is there."""
        table = self._delta() if sink == DELTA else self._iceberg()
        if table is None:
            return []
        return list(zip(table["k"].to_pylist(), table["n"].to_pylist(), strict=True))

    def _delta(self) -> Any:
        from deltalake import DeltaTable  # noqa: PLC0415 - of an extra
        from deltalake.exceptions import TableNotFoundError  # noqa: PLC0415

        key_id, secret, token = self._credentials()
        options = {
            "aws_access_key_id": key_id,
            "aws_secret_access_key": secret,
            "aws_region": self._region,
        }
        if token:
            options["aws_session_token"] = token
        if endpoint := _endpoint("S3"):
            options |= {"aws_endpoint": endpoint, "aws_allow_http": "true"}
        try:
            table = DeltaTable(f"{self._prefix}/{DELTA}", storage_options=options)
        except TableNotFoundError:
            return None
        return table.to_pyarrow_table(columns=["k", "n"])

    def _iceberg(self) -> Any:
        from pyiceberg.catalog import load_catalog  # noqa: PLC0415
        from pyiceberg.exceptions import NoSuchTableError  # noqa: PLC0415

        key_id, secret, token = self._credentials()
        options: dict[str, str | None] = {
            "type": "glue",
            "client.region": self._region,
            "client.access-key-id": key_id,
            "client.secret-access-key": secret,
        }
        if token:
            options["client.session-token"] = token
        if endpoint := _endpoint("S3"):
            options["s3.endpoint"] = endpoint
        if endpoint := _endpoint("GLUE"):
            options["glue.endpoint"] = endpoint
        catalog = load_catalog("acceptance", **options)
        try:
            table = catalog.load_table((self._database, _ICEBERG_TABLE))
        except NoSuchTableError:
            return None
        return table.scan(selected_fields=("k", "n")).to_arrow()


def _endpoint(service: str) -> str | None:
    return os.environ.get(f"AWS_ENDPOINT_URL_{service}") or os.environ.get("AWS_ENDPOINT_URL")
