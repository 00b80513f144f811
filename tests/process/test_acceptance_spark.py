"""The stage of PySpark children, with moto's S3 and Glue."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from kcl_mld.local.embedded import EmbeddedAws

pytestmark = [pytest.mark.process, pytest.mark.proof, pytest.mark.spark]

ARGUMENTS = (
    *("--account", "123456789012", "--yes", "--control-interval", "0", "--directory", "run"),
    *("--bucket", "lake", "--stage", "polling", "--stage", "spark", "--minutes", "20"),
)


def test_two_tables_have_each_record_once_and_are_deleted(aws: EmbeddedAws, tmp_path: Path) -> None:
    s3, glue = aws.client("s3"), aws.client("glue")
    s3.create_bucket(Bucket="lake")
    s3.put_object(Bucket="lake", Key="others/file", Body=b"-")
    done = subprocess.run(
        [sys.executable, "-m", "kcl_mld", "acceptance", *ARGUMENTS],
        cwd=tmp_path,
        env=aws.environment_for_child(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "spark: passed" in done.stderr
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    rows = {name: count for name, count in report["observed"].items() if name.startswith("rows")}
    assert rows.keys() == {"rows of the delta table", "rows of the iceberg table"}
    assert all(count > 0 for count in rows.values())
    listed = s3.list_objects_v2(Bucket="lake")["Contents"]
    assert [each["Key"] for each in listed] == ["others/file"]
    assert glue.get_databases()["DatabaseList"] == []
