"""A folder with one file a schema version, for children in any language.

Its name is in the children's environment. It belongs to one daemon and goes with it; what a killed
daemon left is removed by the next one, which knows it by a lock that nobody holds any more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from kcl_mld.kernel.adapters.calls import CallPool
    from kcl_mld.retrieval.model.schema import SchemaVersion

_PREFIX = "kcl-mld-schemas-"
_UNFINISHED = "kcl-mld-new-schemas-"


class SchemaFolder:
    """The port :class:`kcl_mld.retrieval.ports.DefinitionFiles`; close it at the end.

    Args:
        parent: where the folder is made; None = the system's place for temporary files.

    Raises:
        ConfigError: it cannot be made there.
    """

    def __init__(self, pool: CallPool, parent: Path | None = None) -> None:
        self._pool = pool
        try:
            beside = Path(tempfile.gettempdir()) if parent is None else parent
            _remove_leftovers(beside)
            self._path, self._lock = _made(beside.absolute())
        except OSError as error:
            why = f"the folder for definitions cannot be made ({error}); TMPDIR says where"
            raise ConfigError(why, key="glueSchemaRegistry.enabled") from error

    @property
    def folder(self) -> str:
        """Absolute path."""
        return str(self._path)

    async def put(self, version: SchemaVersion) -> None:
        """Write a definition as UTF-8; nothing when it is there.

        Raises:
            OSError: it cannot be written.
        """
        await self._pool.run(self._put, version)

    def _put(self, version: SchemaVersion) -> None:
        target = self._path / version.version_id
        if target.exists():
            return
        unfinished = target.with_name(f".{version.version_id}")
        unfinished.write_bytes(version.definition.encode("utf-8", "replace"))
        unfinished.chmod(0o400)
        unfinished.replace(target)

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._path, ignore_errors=True)
        os.close(self._lock)


def _made(beside: Path) -> tuple[Path, int]:
    """A new folder, and the descriptor that holds its lock."""
    # 0700, as mkdtemp makes it: definitions may be nobody else's business.
    made = Path(tempfile.mkdtemp(prefix=_UNFINISHED, dir=beside))
    # The lock also keeps systemd-tmpfiles from removing files that were not used for days.
    lock = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_EX)
    # Under its name only once it is locked: an unlocked one is a dead daemon's.
    return made.rename(beside / made.name.replace(_UNFINISHED, _PREFIX, 1)), lock


def _remove_leftovers(beside: Path) -> None:
    """Folders of this user whose daemon is gone."""
    for folder in beside.glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.stat(follow_symlinks=False).st_uid == os.getuid() and _is_left(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    """Whether nobody holds its lock.

    Raises:
        OSError: somebody does.
    """
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(lock)
    return True
