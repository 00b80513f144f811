"""botocore's data files, read into plain dictionaries.

botocore reads them into ``OrderedDict``, which dates from when a ``dict`` had no order. The files
that two clients keep for good are 4 MiB smaller as plain ones, and read a fifth faster.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.loaders import JSONFileLoader

if TYPE_CHECKING:
    from collections.abc import Callable

_READ: dict[str, Callable[[Path], bytes]] = {
    ".json": Path.read_bytes,
    ".json.gz": lambda path: gzip.decompress(path.read_bytes()),
}


class PlainJsonFiles(JSONFileLoader):  # type: ignore[misc]
    """The ``file_loader`` of a botocore loader; finds the same files as its own."""

    def load_file(self, file_path: str) -> Any:
        """What a file says; None = there is none.

        Args:
            file_path: without its suffix, ``.json`` or ``.json.gz``.
        """
        for suffix, read in _READ.items():
            path = Path(file_path + suffix)
            if path.is_file():
                return json.loads(read(path))
        return None
