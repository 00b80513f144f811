"""Which ``amazon_kclpy`` a child finds: its own one wherever it is, else the stand-in."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.kclpy_path import SHIM
from kcl_mld.children.adapters.prefork import PreforkLauncher
from kcl_mld.config.config import Kclpy

if TYPE_CHECKING:
    from pathlib import Path

    from kcl_mld.children.ports import ChildLauncher

pytestmark = pytest.mark.process

#: Says which package was found, and that all of it is of one kind.
PROGRAM = """
import amazon_kclpy.kcl, amazon_kclpy.v3.processor
kinds = {"own" if hasattr(m, "OWN") else "shim" for m in (amazon_kclpy.kcl, amazon_kclpy.v3.processor)}
print(*kinds)
"""

#: An editable installation by an import hook, as some build backends make them.
HOOK = """
import sys
from importlib.machinery import PathFinder
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return PathFinder.find_spec(name, [{folder!r}]) if name == "amazon_kclpy" else None
sys.meta_path.append(Finder)
"""


def put_package(folder: Path) -> Path:
    """A regular package ``amazon_kclpy``, as installers lay it out."""
    for name in ("", "v2", "v3"):
        (folder / "amazon_kclpy" / name).mkdir(parents=True)
        (folder / "amazon_kclpy" / name / "__init__.py").touch()
    for name in ("kcl.py", "v2/processor.py", "v3/processor.py"):
        (folder / "amazon_kclpy" / name).write_text("OWN = True\n")
    return folder


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "app" / "program.py"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    return path


@pytest.fixture
def venv(tmp_path: Path) -> tuple[str, Path]:
    """A fresh interpreter without anything, and its site-packages."""
    folder = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    return str(folder / "bin" / "python"), packages


def found(argv: list[str], launcher: ChildLauncher | None = None, **env: str) -> str:
    """What the program says when the daemon's launcher starts it."""

    async def start() -> str:
        lines: list[bytes] = []
        child = await (launcher or ProcessLauncher()).start(argv, env, lines.append)
        said = b""
        while data := await child.read():
            said += data
        status = await child.wait()
        return said.decode().strip() if status == 0 else lines[-1].decode()

    return asyncio.run(asyncio.wait_for(start(), 120))


@pytest.fixture(autouse=True)
def _no_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)


def test_without_any_the_stand_in_is_found(venv: tuple[str, Path], program: Path) -> None:
    assert found([venv[0], str(program)]) == "shim"


def test_one_in_site_packages_wins(venv: tuple[str, Path], program: Path) -> None:
    put_package(venv[1])
    assert found([venv[0], str(program)]) == "own"


def test_one_that_a_pth_file_adds_last_of_all_wins(
    venv: tuple[str, Path], program: Path, tmp_path: Path
) -> None:
    own = put_package(tmp_path / "checkout")
    (venv[1] / "editable.pth").write_text(f"{own}\n")
    assert found([venv[0], str(program)]) == "own"


def test_one_beside_the_program_wins(venv: tuple[str, Path], program: Path) -> None:
    put_package(program.parent)
    assert found([venv[0], str(program)]) == "own"


def test_one_on_the_users_python_path_wins(
    venv: tuple[str, Path], program: Path, tmp_path: Path
) -> None:
    own = put_package(tmp_path / "mine")
    assert found([venv[0], str(program)], PYTHONPATH=f"/nonexistent:{own}") == "own"


def test_one_that_the_program_appends_to_the_path_itself_wins(
    venv: tuple[str, Path], program: Path, tmp_path: Path
) -> None:
    own = put_package(tmp_path / "vendored")
    program.write_text(f"import sys; sys.path.append({str(own)!r})\n{PROGRAM}")
    assert found([venv[0], str(program)]) == "own"


def test_an_import_hook_behind_the_path_is_not_asked_which_is_a_known_limit(
    venv: tuple[str, Path], program: Path, tmp_path: Path
) -> None:
    own = put_package(tmp_path / "hooked")
    (venv[1] / "hook.py").write_text(HOOK.format(folder=str(own)))
    (venv[1] / "hook.pth").write_text("import hook\n")
    assert found([venv[0], str(program)]) == "shim"


def test_an_isolated_interpreter_ignores_the_stand_in_which_is_a_known_limit(
    venv: tuple[str, Path], program: Path
) -> None:
    assert "No module named 'amazon_kclpy'" in found([venv[0], "-I", str(program)])


def test_the_stand_in_needs_nothing_but_the_standard_library(
    venv: tuple[str, Path], program: Path
) -> None:
    program.write_text(
        "import sys; before = set(sys.modules)\n"
        "import amazon_kclpy.kcl, amazon_kclpy.dispatch\n"
        "foreign = {m.partition('.')[0] for m in set(sys.modules) - before}\n"
        "print(*sorted(foreign - set(sys.stdlib_module_names)))\n"
    )
    assert found([venv[0], str(program)]) == "amazon_kclpy"


# -- kclpy = bundled, installed --------------------------------------------------------------------


def test_the_bundled_one_precedes_an_installed_one(
    venv: tuple[str, Path], program: Path, tmp_path: Path
) -> None:
    put_package(venv[1])
    own = put_package(tmp_path / "mine")
    launcher = ProcessLauncher(kclpy=Kclpy.BUNDLED)
    assert found([venv[0], str(program)], launcher, PYTHONPATH=str(own)) == "shim"


def test_the_bundled_one_precedes_an_installed_one_in_a_template(
    venv: tuple[str, Path], program: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put_package(venv[1])
    launcher = PreforkLauncher(kclpy=Kclpy.BUNDLED)
    with caplog.at_level(logging.INFO):
        assert found([venv[0], str(program)], launcher) == "shim"
        launcher.close()
    assert "are forked from the template process" in caplog.text


def test_only_an_installed_one_is_found_where_the_file_says_so(
    venv: tuple[str, Path], program: Path
) -> None:
    launcher = ProcessLauncher(kclpy=Kclpy.INSTALLED)
    assert "No module named 'amazon_kclpy'" in found([venv[0], str(program)], launcher)
    put_package(venv[1])
    assert found([venv[0], str(program)], launcher) == "own"


def test_the_bundled_folder_holds_nothing_but_the_package() -> None:
    assert [path.name for path in (SHIM / "amazon_kclpy" / "regular").iterdir()] == ["amazon_kclpy"]
