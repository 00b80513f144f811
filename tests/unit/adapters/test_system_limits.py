"""The system's limit of open files is named where it is reached."""

from __future__ import annotations

import asyncio
import os

import pytest

from mld.adapters.children.child_process import ProcessLauncher


def test_a_child_that_gets_no_pipes_names_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> tuple[int, int]:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(os, "pipe", refuse)
    with pytest.raises(OSError, match=r"Too many open files \(raise the limit of open files"):
        asyncio.run(_start("true"))


def test_another_error_stays_as_it_is() -> None:
    with pytest.raises(FileNotFoundError):
        asyncio.run(_start("/nothing/here"))


async def _start(program: str) -> None:
    await ProcessLauncher().start((program,), {}, lambda _line: None)
