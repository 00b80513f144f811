"""Limits of the system are named where they are reached."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import sys
from typing import TYPE_CHECKING, NoReturn

import pytest

from kcl_mld.children.adapters import child_process
from kcl_mld.children.adapters.child_process import ProcessLauncher

if TYPE_CHECKING:
    from pathlib import Path


def test_a_child_that_gets_no_pipes_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    with pytest.raises(OSError, match=r"Too many open files \(raise the limit of open files"):
        asyncio.run(_start("true"))


@pytest.mark.parametrize(
    ("number", "advice"), [(errno.EAGAIN, "ulimit -u, pids.max"), (errno.ENOMEM, "no memory")]
)
def test_a_process_that_the_system_refuses_names_what_to_raise(
    number: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number), "true")

    monkeypatch.setattr(child_process, "start_program", refuse)
    with pytest.raises(OSError, match=rf"{os.strerror(number)} \(.*{advice}") as refused:
        asyncio.run(_start("true"))
    assert refused.value.errno == number


@pytest.mark.skipif(sys.platform != "linux", reason="others execute it")
def test_a_program_that_is_being_written_says_so(tmp_path: Path) -> None:
    program = tmp_path / "program"
    shutil.copy(str(shutil.which("true")), program)
    with program.open("ab"), pytest.raises(OSError, match="the program is being written"):
        asyncio.run(_start(str(program)))
    asyncio.run(_start(str(program)))


def test_another_error_stays_as_it_is() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(_start("/nothing/here"))


async def _start(program: str) -> None:
    await ProcessLauncher().start((program,), {}, lambda _line: None)
