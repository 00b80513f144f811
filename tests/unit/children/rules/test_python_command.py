"""Which command lines start a Python script, and of which parts they consist."""

import pytest

from kcl_mld.config.child_command import PythonCommand, python_command, python_start

PLAIN = b"import sys\n"


def parts(command, head=PLAIN, **variables):
    argv = command.split(" ")
    return python_command(argv, f"/bin/{argv[0]}", head, variables)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python app.py", PythonCommand("python", (), "app.py", ())),
        (
            "/v/bin/python3.12 ./app a b",
            PythonCommand("/v/bin/python3.12", (), "./app", ("a", "b")),
        ),
        (
            "python3 -uO -W error -Xdev -X utf8 app.py -c",
            PythonCommand(
                "python3", ("-uO", "-W", "error", "-Xdev", "-X", "utf8"), "app.py", ("-c",)
            ),
        ),
    ],
)
def test_python_with_a_script(command, expected):
    assert parts(command) == expected


@pytest.mark.parametrize(
    ("head", "interpreter", "options", "name"),
    [
        (b"#!/usr/bin/python3\nx", "/usr/bin/python3", (), "app.py"),
        (b"#! /v/python -u \nx", "/v/python", ("-u",), "app.py"),
        (b"#!/usr/bin/env python3\nx", "python3", (), None),
        (b"#!/usr/bin/env -S python3 -u -O\nx", "python3", ("-u", "-O"), None),
    ],
)
def test_a_script_with_a_python_first_line(head, interpreter, options, name):
    # The kernel names the process after the script, env then after the interpreter.
    expected = PythonCommand(interpreter, options, "/bin/app.py", ("a",), name)
    assert parts("app.py a", head) == expected


@pytest.mark.parametrize(
    ("command", "head", "why"),
    [
        ("python -m app", PLAIN, "python -m starts no script, or not as usual"),
        ("python -c pass", PLAIN, "python -c starts no script, or not as usual"),
        ("python -i app.py", PLAIN, "python -i starts no script, or not as usual"),
        ("python - a", PLAIN, "python - starts no script, or not as usual"),
        ("python -W", PLAIN, "python is given no script"),
        ("python", PLAIN, "python is given no script"),
        ("uv run app.py", b"\x7fELF", "uv is no Python script"),
        ("env A=1 python app.py", b"\x7fELF", "env is no Python script"),
        ("./start.sh", b"#!/bin/sh\nexec python app.py", "./start.sh is no Python script"),
        ("./start", b"#!/usr/bin/env bash\n", "./start is no Python script"),
        ("./start", b"#!/usr/bin/env -S\n", "./start is no Python script"),
        ("./start", b"python", "./start is no Python script"),
        ("./start", b"", "./start is no Python script"),
        (
            "kcl-mld-spark app.py",
            b"#!/v/python\n",
            "the children of kcl-mld-spark are small already",
        ),
    ],
)
def test_what_has_no_template(command, head, why):
    assert parts(command, head) == why


def test_arguments_that_differ_by_shard_have_no_template():
    told = {"KCL_SHARD_ID": "shardId-1", "KCL_LEASE_KEY": "1:s:2:shardId-1"}
    assert parts("python a.py --id=shardId-1", **told) == "its arguments name the shard"
    assert isinstance(parts("python a.py s", KCL_STREAM_NAME="s", KCL_SHARD_ID=""), PythonCommand)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python app.py -I", ("python", (), "app.py", None)),
        (
            "python3 -u -W error -Xdev app.py",
            ("python3", ("-u", "-W", "error", "-Xdev"), "app.py", None),
        ),
        ("python -I app.py", ("python", ("-I",), "app.py", "-I")),
        ("python -u -sE app.py", ("python", ("-u", "-sE"), "app.py", "-sE")),
        ("python -m app -I", ("python", (), None, None)),
        ("python -Im app", ("python", (), None, "-Im")),
        ("python -c pass", ("python", (), None, None)),
        ("python -X importtime", ("python", ("-X", "importtime"), None, None)),
        ("python", ("python", (), None, None)),
        ("node app.js -I", None),
    ],
)
def test_how_python_is_started(command, expected):
    argv = command.split(" ")
    assert python_start(argv, f"/bin/{argv[0]}", PLAIN) == expected


def test_how_the_first_line_of_a_script_starts_python():
    head = b"#!/usr/bin/python3 -I\n"
    start = python_start(["app.py", "x"], "/bin/app.py", head)
    assert start == ("/usr/bin/python3", ("-I",), "/bin/app.py", "-I")
