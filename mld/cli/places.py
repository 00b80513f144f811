"""Where a command is, and where it may write: asked before the work, not after it."""

from __future__ import annotations

import os
from pathlib import Path

from mld.errors import ConfigError

#: What there is to say and to do where somebody deleted the directory of this process.
GONE = "the working directory is gone"
ELSEWHERE = "start again where there is one"


def working_directory() -> Path:
    """The directory of this process.

    Raises:
        ConfigError: it was deleted.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError(f"{GONE}: {ELSEWHERE}") from None


def require_writable(file: str, option: str) -> None:
    """Refuse a file that could not be written when all is done.

    Args:
        file: as typed; it is not touched.

    Raises:
        ConfigError: its folder does not exist, it is a directory, or may not be written.
    """
    path = working_directory() / file
    if not path.parent.is_dir():
        raise ConfigError(f"{file}: the folder does not exist", key=option)
    if path.is_dir():
        raise ConfigError(f"{file}: is a directory", key=option)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{file}: may not be written", key=option)
