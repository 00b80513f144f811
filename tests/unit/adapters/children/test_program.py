"""Whether the program of executableName can be started: what is said is what really happens."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from mld.adapters.children.child_process import ProcessLauncher
from mld.adapters.children.program import Surroundings, examine, examine_child

PYTHON = f"#!{sys.executable}\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty working directory, and a PATH of one folder beside it."""
    folder, programs = tmp_path / "here", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    for name in ("sh", "env"):
        (programs / name).symlink_to(f"/bin/{name}")
    (programs / "python3").symlink_to(sys.executable)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(programs))
    return folder


def put(path, content="", mode=0o755):
    data = content if isinstance(content, bytes) else content.encode()
    Path(path).write_bytes(data)
    Path(path).chmod(mode)


def problems(command, beside=None):
    return examine_child(command.split(" "), Surroundings(os.environ, Path.cwd(), beside))


def status_of(command):
    """What really happens: the exit status of a child that is started so, or the error."""

    async def start():
        child = await ProcessLauncher().start(command.split(" "), {}, lambda _: None)
        await child.close_stdin()
        status = await child.wait()
        while await child.read():
            pass
        return status

    try:
        return asyncio.run(start())
    except OSError as error:
        return error.errno


def check(command, *, text, advice="", severity="error", beside=None):
    """One problem of that kind; an error must be one in fact."""
    (problem,) = problems(command, beside)
    assert problem.severity == severity
    assert text in problem.text
    assert advice in problem.suggestion
    assert (status_of(command) != 0) is (severity == "error")


@pytest.mark.parametrize(
    ("content", "command"),
    [
        (PYTHON, "./app.py"),
        ("#!/usr/bin/env python3\n", "./app.py"),
        ("#!/usr/bin/env -S python3 -u\n", "./app.py"),
        ("#!/usr/bin/env -S A=1 python3 -u\r\n", "./app.py"),
        ("#! /bin/sh -e\n", "./app.py"),
        ("", "python3 app.py"),
        ("", "python3 -u -Es ./app.py"),
        ("", "env A=1 python3 app.py"),
        ("", "python3 -c pass"),
        ("", "sh -c true"),
    ],
)
def test_what_can_be_started_gives_no_finding(here, content, command):
    put("app.py", content)
    assert problems(command) == ()
    assert status_of(command) == 0


def test_a_name_is_found_by_path_only_and_a_file_here_is_hinted_at(here):
    put("app.py", PYTHON)
    check(
        "app.py",
        text="app.py is not found in PATH",
        advice="./app.py is here: write executableName = ./app.py",
    )


def test_a_file_here_that_may_not_be_executed_is_hinted_at_with_both_ways_out(here):
    put("app.py", PYTHON, mode=0o644)
    check("app.py", text="not found in PATH", advice="write executableName = python3 app.py, or")
    put("app", PYTHON, mode=0o644)
    check("app", text="not found in PATH", advice="./app is here: chmod +x it and write")


@pytest.mark.parametrize("path", ["", ".", ":/nowhere"])
def test_an_empty_part_of_path_or_a_dot_is_the_working_directory(here, monkeypatch, path):
    put("app.py", PYTHON)
    monkeypatch.setenv("PATH", path)
    assert problems("app.py") == ()
    assert status_of("app.py") == 0


def test_a_program_that_may_not_be_executed(here):
    put("app.py", PYTHON, mode=0o644)
    check("./app.py", text="./app.py is not executable", advice="chmod +x")
    (here / "folder").mkdir()
    check("./folder", text="./folder is a directory")


def test_a_path_that_does_not_exist(here):
    put("app.py", PYTHON)
    text = f"./ap.py does not exist (relative to the working directory {here})"
    check("./ap.py", text=text, advice="did you mean ./app.py?")
    check(f"{here}/ap.py", text=f"{here}/ap.py does not exist", advice=f"mean {here}/app.py?")
    check("/no/such", text="/no/such does not exist", advice="correct the name")
    check("a\0b", text="not found")


def test_a_link_that_leads_nowhere_is_not_its_own_correction(here):
    (here / "gone.py").symlink_to(here / "nothing-of-the-kind")
    check("./gone.py", text="./gone.py does not exist", advice="correct the name")


def test_a_name_that_is_similar_to_one_in_path_or_here(here):
    check("pyhton3", text="pyhton3 is not found in PATH", advice="did you mean python3?")
    put("sample.py", PYTHON)
    check("sampel.py", text="sampel.py is not found in PATH", advice="did you mean ./sample.py?")


def test_what_only_a_shell_would_expand(here, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    check("~/app.py", text="~/app.py does not exist", advice="write /home/me/app.py")
    check("$HOME/app.py", text="does not exist", advice="variables are not expanded")


def test_a_directory_is_no_app_of_spark_and_no_advice(tmp_path):
    (tmp_path / "pipeline").mkdir()
    put(tmp_path / "kcl-mld-spark", "#!/bin/sh\n")
    for name in (".", "pipeline"):
        (problem,) = examine(
            [str(tmp_path / "kcl-mld-spark"), name],
            Surroundings(os.environ, tmp_path, tmp_path),
        )
        assert problem.text.startswith(f"the app {name} is a directory")
        assert problem.suggestion == "name a file in it"
    (tmp_path / "work").mkdir()
    (problem,) = examine(["./pipeline"], Surroundings(os.environ, tmp_path / "work", tmp_path))
    assert "beside" not in problem.suggestion


def test_the_daemon_is_no_child_but_a_daemon(here):
    put("kcl-mld", "#!/usr/bin/env python3\nfrom mld.cli import main\nmain()\n")
    put("env", b"\x7fELF\0")
    around = Surroundings({"PATH": f"{here}:/usr/bin:/bin"}, here)
    for command in (["kcl-mld", "f"], ["env", "A=b", "kcl-mld", "f"]):
        assert "is the daemon itself" in examine_child(command, around)[0].text
        assert examine(command, around) == ()


def test_a_path_with_blanks_and_one_beside_the_properties_file(here, tmp_path):
    (here / "my app").mkdir()
    put("my app/run", PYTHON)
    check("my app/run", text="my is not found", advice="split on spaces")
    put(tmp_path / "app.py", PYTHON)
    beside = tmp_path / "app.py"
    check("./app.py", text="does not exist", advice=f"write {beside}, which is", beside=tmp_path)


@pytest.mark.parametrize(
    ("head", "text", "advice"),
    [
        ("#!/usr/bin/python9\n", "interpreter of ./app.py does not exist", "#!/usr/bin/env"),
        ("#!/usr/bin/env python3\r\nx", "ends with CR LF", "sed -i 's/\\r$//' "),
        ("#!/bin/sh\r\n", "so that no /bin/sh is found", "Unix line ends"),
        ("#!/usr/bin/env pyhton3\n", "needs pyhton3, which is not found", "did you mean python3?"),
        ("#!/usr/bin/env ruby9\n", "needs ruby9", "install ruby9"),
        ("#!/usr/bin/env python3 -u\n", "a program 'python3 -u'", "write /usr/bin/env -S python3"),
        ("#!/usr/bin/env -S nothing9 -u\n", "needs nothing9", "install"),
    ],
)
def test_a_first_line_that_leads_nowhere(here, head, text, advice):
    put("app.py", head)
    check("./app.py", text=text, advice=advice)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("", "is empty"),
        (b"\xef\xbb\xbf#!/usr/bin/env python3\nimport os\n", "begins with a byte-order mark"),
        ("#!\n", "names no interpreter"),
    ],
)
def test_a_file_that_no_kernel_starts(here, content, text):
    put("app.py", content)
    (problem,) = problems("./app.py")
    assert (problem.severity, text in problem.text) == ("error", True)


def test_a_text_without_a_first_line_is_run_by_the_shell_as_in_java(here):
    put("app.py", "test $# = 2 && exit 7; exit 0\n")
    check("./app.py", text="has no #! line: /bin/sh runs it", severity="warning")
    put(here.parent / "bin" / "app", "test $# = 2 && exit 7; exit 0\n")
    assert status_of("app a b") == 7


def test_a_binary_is_not_judged(here):
    put("app", b"\x7fELF\x00")
    assert problems("./app") == ()


def test_a_program_that_may_not_be_read_is_not_judged(here):
    put("app.py", PYTHON, mode=0o111)
    if os.access("app.py", os.R_OK):
        pytest.skip("root reads everything")
    assert problems("./app.py") == ()


def test_a_script_that_the_interpreter_will_not_find(here):
    put("app.py")
    text = (
        f"ap.py, which python3 is to run, does not exist (relative to the working directory {here})"
    )
    check("python3 ap.py", text=text, advice="did you mean ./app.py?")
    check("python3 -u ./ap.py", text="./ap.py, which python3", advice="did you mean ./app.py?")
    check("env A=1 python3 ap.py", text="ap.py, which python3 is to run")
    check("env nothing9 app.py", text="env needs nothing9")
    check("python3 /no/app.py", text="/no/app.py, which python3 is to run, does not exist")


def test_a_script_that_a_shell_may_find_in_path_is_not_judged(here):
    put(here.parent / "bin" / "job.sh", "exit 7\n")
    assert problems("sh job.sh") == ()
    check("sh jab.sh", text="jab.sh, which sh is to run, does not exist")


def test_a_script_without_the_ending_that_node_adds(here):
    put(here.parent / "bin" / "node", "#!/bin/sh\n")
    put("app.js")
    put("main.json", "{}")
    assert problems("node ./app") == problems(f"node {here}/app") == problems("node ./main") == ()
    (problem,) = problems("node ./ap")
    assert problem.text.startswith("./ap, which node is to run, does not exist")
    put("tool.py")
    check("python3 ./tool", text="./tool, which python3 is to run, does not exist")


def test_env_alone_and_its_options_are_not_judged(here):
    assert problems("env") == problems("env -i python3 x.py") == problems("env A=1") == ()
