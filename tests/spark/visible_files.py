"""What any reader of Parquet sees below a directory, read without our own reader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


def visible_files(folder: Path) -> Iterator[Path]:
    """The Parquet files below a folder, without what begins with ``_`` or ``.``.

    Directories of such names are not even listed: in ``_staging`` processes come and go.
    """
    for path, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name[0] not in "_."]
        for name in files:
            if name.endswith(".parquet") and name[0] not in "_.":
                yield Path(path, name)
