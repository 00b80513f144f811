"""The commands that the pages show, and how their sources say what a reader cannot do at once.

Every block of shell commands is typed by ``tests/process/test_pages.py`` as it stands. Comments of
the page right before a block, ``<!-- test: … -->``, say more:

* ``not run: REASON``: it needs AWS itself, a cluster, or an hour.
* ``slow``: it takes more than 10 s, and is typed where ``KCL_MLD_PAGES=all`` is set (``make proof``).
* ``in a checkout``: the folder of the page is a copy of the project, else it is empty at first.
* ``until: TEXT``: Ctrl-C is typed when this was printed; several lines mean all of their texts.
* ``prints: TEXT``: the same for a command that ends by itself.
* ``before:`` and commands: what a reader has done by then, such as files of his own.
* ``script: NAME``: the same, in a file of ``tests/pages``, where they are long.
* ``file: NAME``: the block, in whatever language, is the text of a file that a reader has.

In a block ``console`` commands begin with ``$``, and the other lines are what they print.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from tests.markdown_pages import PAGES, ROOT, page

RUNS_ALL = os.environ.get("KCL_MLD_PAGES") == "all"
_MARK = "test: "
SCRIPTS = ROOT / "tests" / "pages"
_KINDS = ("not run", "slow", "in a checkout", "until", "prints", "before", "script", "file")
#: Targets that a landing runs by themselves.
GATES = re.findall(r"^make ([\w-]+)", (ROOT / ".ci" / "run").read_text("utf-8"), re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """Commands of a page that are typed together.

    Attributes:
        place: the page.
        commands: text for a shell.
        printed: what a page shows of their output; "" = nothing.
        marks: kind -> text, of the comments before it.
    """

    place: str
    commands: str
    printed: str
    marks: dict[str, str]

    @property
    def reason(self):
        """Why it is not run; None = it is."""
        return self.marks.get("not run")

    @property
    def is_run(self):
        """Whether this run of the tests types it."""
        return self.reason is None and (RUNS_ALL or "slow" not in self.marks)

    @property
    def expected(self):
        """Texts that must be printed."""
        lines = [
            *self.marks.get("until", "").splitlines(),
            *self.marks.get("prints", "").splitlines(),
        ]
        return [line.strip() for line in lines if line.strip()]


def blocks_of(name):
    """The blocks of a page in their order.

    Raises:
        AssertionError: a mark is none of those above, or a reason is missing.
    """
    blocks = [_block(name, fence) for fence in page(name).fences]
    return [block for block in blocks if block is not None]


def _block(place, fence):
    """A fenced block; None = it has no commands."""
    marks = {}
    for note in fence.notes:
        if note.startswith(_MARK):
            kind, _, text = note.removeprefix(_MARK).partition(":")
            assert kind in _KINDS, f"{place}: {note}"
            assert bool(text.strip()) == (kind not in {"slow", "in a checkout"}), f"{place}: {note}"
            marks[kind] = text.strip()
    if "script" in marks:
        assert "before" not in marks, f"{place}: before and script"
        marks["before"] = (SCRIPTS / marks.pop("script")).read_text("utf-8").strip()
    commands, printed = fence.text, ""
    if "file" in marks:
        commands = f"cat > {marks['file']} <<'END OF FILE'\n{fence.text}END OF FILE\n"
    elif fence.language not in {"sh", "console"}:
        return None
    elif fence.language == "console":
        lines = fence.text.splitlines(keepends=True)
        commands = "".join(line[2:] for line in lines if line.startswith("$ "))
        printed = "".join(line for line in lines if not line.startswith("$ "))
    return Block(place, _without_gates(commands), printed, marks)


def _without_gates(commands):
    """Commands without those that a landing runs as a target of the Makefile."""
    covered = {f"make {target}" for target in GATES} | set(recipes(GATES))
    lines = commands.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition("#")[0].strip() not in covered)


def recipes(targets):
    """The commands of targets of the Makefile, as a reader would type them."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for target in targets:
        rule = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
        assert rule is not None, f".ci/run: make {target}"
        for line in rule[1].splitlines():
            yield line.strip().replace("$(BIN)/", "")


def summary():
    """One line that counts the blocks of all pages."""
    blocks = [block for name in PAGES for block in blocks_of(name)]
    marked = sum(block.reason is not None for block in blocks)
    slow = sum("slow" in block.marks for block in blocks)
    where = "here, too" if RUNS_ALL else "in make proof only"
    return (
        f"pages: {len(blocks)} blocks of commands, {slow} of them slow ({where}), {marked} not run"
    )
