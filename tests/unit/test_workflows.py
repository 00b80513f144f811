"""The workflows are read by actionlint and by zizmor, as no runner is here to run them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.markdown_pages import ROOT

FOLDER = ROOT / ".github"
WORKFLOWS = sorted(FOLDER.glob("workflows/*.yml"))
#: Where .ci/run puts what it builds.
_TOOLS = os.pathsep.join([str(ROOT / ".cache" / "bin"), str(Path(sys.executable).parent)])


def linted(tool, *words, folder=ROOT):
    """Exit code of a linter, and what it printed; skips where the linter is absent."""
    program = shutil.which(tool, path=f"{_TOOLS}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        pytest.skip(f"{tool} is not installed: the workflows are not checked by it")
    done = subprocess.run(
        [program, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def copied(folder, old, new):
    """The workflows with a change in each that has the text."""
    shutil.copytree(FOLDER, folder / ".github")
    changed = 0
    for path in (folder / ".github" / "workflows").iterdir():
        text = path.read_text("utf-8")
        changed += old in text
        path.write_text(text.replace(old, new), "utf-8")
    assert changed
    return sorted(str(path) for path in (folder / ".github" / "workflows").iterdir())


def test_each_says_that_it_was_never_run_and_has_no_hash_that_nobody_saw():
    assert {path.stem for path in WORKFLOWS} == {"test", "audit", "release"}
    for path in WORKFLOWS:
        text = path.read_text("utf-8")
        assert text.startswith("# Never run: "), path.name
        assert not re.search(r"\b[0-9a-f]{40}\b", text), path.name


def test_actionlint_has_nothing_to_say():
    assert linted("actionlint", *map(str, WORKFLOWS)) == (0, "")


def test_actionlint_finds_a_job_that_needs_another_that_is_not_there(tmp_path):
    code, printed = linted("actionlint", *copied(tmp_path, "needs: build", "needs: built"))
    assert code == 1
    assert 'job "publish" needs job "built" which does not exist' in printed


def test_zizmor_has_nothing_to_say():
    code, printed = linted("zizmor", "--offline", "--no-progress", str(FOLDER))
    assert code == 0, printed
    assert "No findings to report." in printed


def test_zizmor_finds_text_of_a_stranger_in_a_command(tmp_path):
    copied(tmp_path, "run: make test\n", "run: make test BRANCH=${{ github.head_ref }}\n")
    code, printed = linted("zizmor", "--offline", "--no-progress", ".github", folder=tmp_path)
    assert code != 0
    assert "template-injection" in printed


def test_every_target_that_a_workflow_runs_is_there():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for path in WORKFLOWS:
        for target in re.findall(r"run: make ([\w-]+)", path.read_text("utf-8")):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{path.name}: {target}"
