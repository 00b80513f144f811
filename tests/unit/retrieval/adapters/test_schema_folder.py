"""The folder of definitions: private, whole files, gone at the end, nobody else's touched."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.retrieval.adapters.schema_folder import SchemaFolder
from kcl_mld.retrieval.model.schema import SchemaVersion
from kcl_mld_protocol.child import schema_definition
from tests.fakes.schema_frames import ORDER, ORDER_ID


@pytest.fixture
def pool():
    made = CallPool("files", 1)
    yield made
    made.close()


def names(folder: str) -> set[str]:
    return {one.name for one in Path(folder).iterdir() if not one.name.startswith(".")}


async def _put(files, *versions):
    for one in versions:
        await files.put(one)


def put(files, *versions):
    asyncio.run(_put(files, *versions))


def test_a_child_reads_the_definition_by_the_version_id(tmp_path, pool):
    files = SchemaFolder(pool, tmp_path)
    umlaut = SchemaVersion("00000000-0000-0000-0000-000000000001", "s", "JSON", '{"a": "ö"}')
    put(files, ORDER, umlaut, ORDER)
    assert names(files.folder) == {ORDER_ID, umlaut.version_id}
    environ = {"KCL_MLD_SCHEMAS": files.folder}
    assert schema_definition(ORDER_ID, environ) == ORDER.definition
    assert schema_definition(umlaut.version_id, environ) == umlaut.definition
    assert schema_definition("00000000-0000-0000-0000-000000000002", environ) is None
    assert schema_definition(ORDER_ID, {}) is None
    with pytest.raises(ValueError, match="not the id"):
        schema_definition("../../etc/passwd", environ)
    files.close()


def test_the_folder_is_private_and_goes_with_the_daemon(tmp_path, pool):
    files = SchemaFolder(pool, tmp_path)
    folder = Path(files.folder)
    assert folder.is_absolute()
    assert folder.stat().st_mode & 0o777 == 0o700
    put(files, ORDER)
    assert (folder / ORDER_ID).stat().st_mode & 0o777 == 0o400
    files.close()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_written_is_an_os_error(tmp_path, pool):
    files = SchemaFolder(pool, tmp_path)
    files.close()
    with pytest.raises(OSError, match=ORDER_ID):
        put(files, ORDER)


def test_what_a_killed_daemon_left_is_removed_by_the_next(tmp_path, pool):
    program = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from kcl_mld.kernel.adapters.calls import CallPool\n"
        "from kcl_mld.retrieval.adapters.schema_folder import SchemaFolder\n"
        "print(SchemaFolder(CallPool('x', 1), Path(sys.argv[1])).folder, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        left = Path(other.stdout.readline().strip())
        living = SchemaFolder(pool, tmp_path)
        assert left.is_dir()  # its daemon lives
        os.kill(other.pid, signal.SIGKILL)
    unlocked = tmp_path / "kcl-mld-new-schemas-x"
    unlocked.mkdir()
    link = tmp_path / "kcl-mld-schemas-link"
    link.symlink_to(unlocked)
    files = SchemaFolder(pool, tmp_path)
    assert not left.exists()
    assert Path(living.folder).is_dir()
    assert unlocked.is_dir()  # somebody is just making it
    assert link.is_symlink()
    files.close()
    living.close()


def test_a_folder_that_cannot_be_made_is_told_with_what_to_do(tmp_path, pool):
    with pytest.raises(ConfigError, match=r"cannot be made .*TMPDIR") as error:
        SchemaFolder(pool, tmp_path / "missing")
    assert error.value.exit_code == 2
