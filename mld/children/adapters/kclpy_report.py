"""Logs which ``amazon_kclpy`` the children of a program import, and what decodes their batches.

A separate process with the child's interpreter, environment and path determines this, without
importing anything of the program. It runs once for each way in which Python is started, after the
start of the first child, which does not wait for it.

Source: https://docs.python.org/3/library/sys_path_init.html for the path of a script.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.children.adapters.kclpy_path import SHIM
from kcl_mld.children.adapters.program import StartPlace, python_start_of
from kcl_mld.config.child_command import spark_command
from kcl_mld.kernel.adapters.system import system_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from kcl_mld.children.ports import Child, ChildLauncher

log = logging.getLogger("mld.children")

#: Longest wait for an interpreter's answer, in seconds.
ANSWER_S = 60.0
_OF_1X = (
    "whose version is 1.x: children end with an error when their shard ends or their lease is lost "
    "(install amazon_kclpy 2 or later, or write kclpy = bundled)"
)
#: Prints the folders of the package and, for the stand-in, its decoder; runs on any Python 3.
_QUESTION = """
import importlib.util, json, sys
if sys.path and sys.path[0] == "":
    sys.path[0] = sys.argv[1]
found = importlib.util.find_spec("amazon_kclpy")
places = list(found.submodule_search_locations or ()) if found else []
decoder = "json"
if any(place.startswith(sys.argv[2]) for place in places):
    try:
        from amazon_kclpy.batch_decoder import NAME as decoder
    except ImportError:
        pass
print("\\n" + json.dumps([places, decoder]))
"""


class KclpyReport:
    """Starts children by a launcher, and logs for each program which package its children import.

    Args:
        ordinary: starts the interpreters to query, with the environment of the children.
    """

    def __init__(self, launcher: ChildLauncher, ordinary: ChildLauncher) -> None:
        self._launcher = launcher
        self._ordinary = ordinary
        self._asked: dict[tuple[str, ...], asyncio.Future[None]] = {}

    async def start(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        on_stderr: Callable[[bytes], None],
    ) -> Child:
        """Start a child as the launcher does, with the same errors."""
        child = await self._launcher.start(argv, env, on_stderr)
        words = [*map(system_text, argv)]
        if spark_command(words) is None:  # the children of Spark need none
            question = _question(words, StartPlace(os.environ, Path()))
            key = (words[0],) if question is None else question
            if key not in self._asked:
                name = next((word for word in words if word.endswith(".py")), words[0])
                self._asked[key] = asyncio.ensure_future(self._report(name, question, env))
        return child

    async def reported(self) -> None:
        """Wait until all results are logged."""
        await asyncio.gather(*self._asked.values())

    async def _report(
        self, name: str, question: tuple[str, ...] | None, env: Mapping[str, str]
    ) -> None:
        level = logging.INFO
        if question is None:
            finding = "unknown, as it is no Python script"
        else:
            try:
                level, finding = _finding(await self._ask(question, env))
            except (OSError, TimeoutError, TypeError, ValueError):
                finding = "unknown, as its interpreter does not tell"
        log.log(level, "amazon_kclpy for children of %s: %s", name, finding)

    async def _ask(self, question: tuple[str, ...], env: Mapping[str, str]) -> bytes:
        child = await self._ordinary.start(question, env, lambda _line: None)
        try:
            async with asyncio.timeout(ANSWER_S):
                await child.close_stdin()
                answer = b""
                while more := await child.read():
                    answer += more
                await child.wait()
        finally:
            child.kill()
        return answer


def _question(words: list[str], around: StartPlace) -> tuple[str, ...] | None:
    """The command that queries a program's interpreter; None if the program is not Python."""
    found = python_start_of(words, around)
    if found is None:
        return None
    prefix, start = found
    place = around.folder if start.script is None else _folder_of(start.script, around)
    return (*prefix, start.interpreter, *start.options, "-c", _QUESTION, str(place), str(SHIM))


def _folder_of(script: str, around: StartPlace) -> Path:
    return Path(os.path.realpath(around.folder / script)).parent


def _finding(answer: bytes) -> tuple[int, str]:
    """A level of the log and a sentence for an interpreter's answer.

    Raises:
        TypeError, ValueError: the answer can't be read.
    """
    places, decoder = json.loads(answer.strip().rpartition(b"\n")[2])
    if not places:
        return logging.INFO, "none is found"
    if not any(place.startswith(str(SHIM)) for place in places):
        if _is_1x(Path(places[0])):
            return logging.WARNING, f"{places[0]}, {_OF_1X}"
        return logging.INFO, f"{places[0]}, which decodes with json"
    advice = " (install msgspec there to decode for less)" if decoder == "json" else ""
    return logging.INFO, f"the bundled one, which decodes with {decoder}{advice}"


def _is_1x(package: Path) -> bool:
    """Whether the package is of 1.x: processors of version 3 came with 2.0."""
    return (package / "kcl.py").is_file() and not (package / "v3").is_dir()
