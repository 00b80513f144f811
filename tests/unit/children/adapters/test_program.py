"""Whether the program of executableName can be started: what is said is what really happens."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.program import (
    StartPlace,
    examine,
    examine_child,
    python_start_of,
)
from kcl_mld.config.config import Kclpy

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


def problems(command):
    return examine_child(command.split(" "), StartPlace(os.environ, Path.cwd()))


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


def check(command, *, text, advice="", severity="error"):
    """One problem of that kind; an error must be one in fact."""
    (problem,) = problems(command)
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
    check("./ap.py", text=text, advice="correct the name")
    check(f"{here}/ap.py", text=f"{here}/ap.py does not exist", advice="correct the name")
    check("/no/such", text="/no/such does not exist", advice="correct the name")
    check("a\0b", text="not found")


def test_a_directory_is_no_app_of_spark(tmp_path):
    (tmp_path / "pipeline").mkdir()
    put(tmp_path / "kcl-mld-spark", "#!/bin/sh\n")
    for name in (".", "pipeline"):
        (problem,) = examine(
            [str(tmp_path / "kcl-mld-spark"), name],
            StartPlace(os.environ, tmp_path),
        )
        assert problem.text.startswith(f"the app {name} is a directory")
        assert problem.suggestion == "name a file in it"


def test_the_daemon_is_no_child_but_a_daemon(here):
    put("kcl-mld", "#!/usr/bin/env python3\nfrom kcl_mld.cli import main\nmain()\n")
    put("env", b"\x7fELF\0")
    around = StartPlace({"PATH": f"{here}:/usr/bin:/bin"}, here)
    for command in (["kcl-mld", "f"], ["env", "A=b", "kcl-mld", "f"]):
        assert "is the daemon itself" in examine_child(command, around)[0].text
        assert examine(command, around) == ()


@pytest.mark.parametrize(
    ("head", "text", "advice"),
    [
        ("#!/usr/bin/python9\n", "interpreter of ./app.py does not exist", "#!/usr/bin/env"),
        ("#!/usr/bin/env python3\r\nx", "ends with CR LF", "sed -i 's/\\r$//' "),
        ("#!/bin/sh\r\n", "so that no /bin/sh is found", "Unix line ends"),
        ("#!/usr/bin/env pyhton3\n", "needs pyhton3, which is not found", "install pyhton3"),
        ("#!/usr/bin/env ruby9\n", "needs ruby9", "install ruby9"),
        ("#!/usr/bin/env python3 -u\n", "needs python3 -u", "install"),
    ],
)
def test_a_first_line_that_leads_nowhere(here, head, text, advice):
    put("app.py", head)
    check("./app.py", text=text, advice=advice)


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
    check("python3 ap.py", text=text, advice="correct the name")
    check("python3 -u ./ap.py", text="./ap.py, which python3", advice="correct the name")
    check("env A=1 python3 ap.py", text="ap.py, which python3 is to run")
    check("python3 /no/app.py", text="/no/app.py, which python3 is to run, does not exist")


@pytest.mark.parametrize(
    "command",
    ["python3 -I app.py", "env A=1 python3 -uE app.py", "./app.py", "python3 -Im app"],
)
def test_an_option_by_which_python_ignores_the_bundled_package(here, command):
    put("app.py", f"#!{here.parent}/bin/python3 -E\n")
    around = StartPlace(os.environ, Path.cwd())
    (problem,) = examine_child(command.split(" "), around, Kclpy.BUNDLED)
    assert problem.severity == "error"
    assert "ignores PYTHONPATH, by which kclpy = bundled works" in problem.text
    assert problem.suggestion in {
        f"leave {option} out, or write kclpy = auto" for option in ("-I", "-uE", "-E", "-Im")
    }
    for kclpy in (Kclpy.AUTO, Kclpy.INSTALLED):
        assert examine_child(command.split(" "), around, kclpy) == ()


def test_other_commands_may_have_the_bundled_package(here):
    put("app.py", PYTHON)
    put("app")
    around = StartPlace(os.environ, Path.cwd())
    for command in ("python3 -s app.py -I", "./app.py", "env", "sh app", "nothing", "env no -I"):
        found = examine_child(command.split(" "), around, Kclpy.BUNDLED)
        assert found == examine_child(command.split(" "), around)
    Path("app.py").chmod(0o111)
    assert python_start_of(["./app.py"], around) is None or os.geteuid() == 0


def test_env_alone_and_its_options_are_not_judged(here):
    assert problems("env") == problems("env -i python3 x.py") == problems("env A=1") == ()
