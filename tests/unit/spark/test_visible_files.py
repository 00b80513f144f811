"""How the tests find the files of an output while processes work there."""

import os

from tests.spark.visible_files import visible_files


def test_staging_that_is_removed_meanwhile_is_not_looked_at(tmp_path, monkeypatch):
    for name in ("stream=s/b/part-1.parquet", "_staging/a/part-2.parquet", "stream=s/_x.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    real = os.scandir

    def scandir(path):
        if os.path.basename(path) == "_staging":
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert list(visible_files(tmp_path)) == [tmp_path / "stream=s/b/part-1.parquet"]
