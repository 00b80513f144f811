"""``kcl-mld-java``: what it starts, prints and makes."""

import os
import sys

import pytest

import kcl_mld.cli.run
from kcl_mld.cli.java import stand_in
from kcl_mld.cli.options import on_class_path
from kcl_mld.cli.run_options import RunOptions
from kcl_mld.ops.rules.java_command import MAIN_CLASS, MAIN_CLASSES_1X


@pytest.fixture
def started(monkeypatch):
    """What the daemon was started with, and its JAVA_HOME and region, instead of starting it."""
    calls = []

    def run(options):
        calls.append((options, os.environ.get("JAVA_HOME"), os.environ.get("AWS_REGION")))
        return 0

    monkeypatch.setattr(kcl_mld.cli.run, "run", run)
    return calls


@pytest.fixture(autouse=True)
def program(tmp_path, monkeypatch):
    """The program as it was started, without anything of Java around it."""
    for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("JAVA_HOME", "/opt/jdk")
    monkeypatch.setenv("AWS_REGION", "")
    path = tmp_path / "bin" / "kcl-mld-java"
    path.parent.mkdir()
    path.touch(mode=0o755)
    monkeypatch.setattr(sys, "argv", [str(path)])
    return path


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory, beside ``conf`` with a file."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "app.properties").touch()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def run(*words):
    return stand_in([*words])


def test_the_daemon_is_started_with_the_file_of_the_class_path(started, folder):
    conf = folder / "conf"
    words = f"-javaagent:/a.jar -Daws.region=eu-west-1 -cp /a.jar:{conf} {MAIN_CLASS}"
    assert run(*words.split(), "app.properties", "-l", "log.xml") == 0
    options = RunOptions(
        properties_file=str(conf / "app.properties"),
        log_configuration="log.xml",
        warnings=("-javaagent has no effect: there is no JVM",),
    )
    assert started == [(options, "/opt/jdk", "eu-west-1")]


@pytest.mark.parametrize(
    ("arguments", "path"), [("", "../conf/app.properties"), ("-l other.xml", "other.xml")]
)
@pytest.mark.usefixtures("folder")
def test_a_logback_file_of_a_property_counts_where_the_arguments_name_none(
    started, arguments, path
):
    words = f"-cp ../conf -Dlogback.configurationFile=app.properties {MAIN_CLASS} x {arguments}"
    assert run(*words.split()) == 0
    assert started[0][0].log_configuration == path


@pytest.mark.parametrize("main_class", MAIN_CLASSES_1X)
def test_a_main_class_of_1x_is_passed_on(started, main_class):
    assert run(main_class, "x.properties") == 0
    assert started[0][0] == RunOptions(properties_file="x.properties", replaces_1x=main_class)


@pytest.mark.parametrize("name", ["kcl-mld-java", "java"])
def test_a_java_home_that_is_this_program_is_hidden_from_children(
    started, program, tmp_path, monkeypatch, name
):
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    target = program.with_name(name)
    if target != program:  # a copy
        target.touch()
    (home / "bin" / "java").symlink_to(target)
    monkeypatch.setattr(sys, "argv", [str(home / "bin" / "java")])
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert run(MAIN_CLASS, "x.properties") == 0
    assert started[0][1] is None


@pytest.mark.parametrize("has_java", [True, False])
def test_another_java_home_stays(started, tmp_path, monkeypatch, has_java):
    if has_java:
        (tmp_path / "jdk" / "bin").mkdir(parents=True)
        (tmp_path / "jdk" / "bin" / "java").touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert run(MAIN_CLASS, "x.properties") == 0
    assert started[0][1] == str(tmp_path / "jdk")


@pytest.mark.parametrize(
    ("word", "stream", "text"),
    [
        ("-version", "err", "kcl-mld-java 1."),
        ("--version", "out", "kcl-mld-java 1."),
        ("-help", "err", "Usage: kcl-mld-java"),
        ("--help", "out", "Usage: kcl-mld-java"),
    ],
)
def test_questions_are_answered(capsys, word, stream, text):
    assert run(word) == 0
    printed = capsys.readouterr()
    assert getattr(printed, stream).startswith(text)
    assert printed.out + printed.err == getattr(printed, stream)


def test_what_is_refused_is_said_line_by_line(capsys, started):
    assert run("-Dhttp.proxyHost=a", "-Daws.secretKey=b", MAIN_CLASS, "x") == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" can't")[0] for line in lines] == [
        "kcl-mld-java: -Dhttp.proxyHost",
        "kcl-mld-java: -Daws.secretKey",
    ]
    assert started == []


def test_an_argument_file_is_read(capsys, started, tmp_path):
    (tmp_path / "args").write_text(f"{MAIN_CLASS} x.properties")
    assert run(f"@{tmp_path}/args") == 0
    assert started[0][0].properties_file == "x.properties"
    assert run(f"@{tmp_path}/no\0file") == 2
    assert run(f"@{tmp_path}/nowhere") == 2
    assert f"`{tmp_path}/nowhere': No such file" in capsys.readouterr().err


# -- a JAVA_HOME


def test_a_home_is_made_and_made_again(capsys, program, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        assert run("--home", "home") == 0
        assert capsys.readouterr().out == f"{tmp_path}/home\n"
        assert (tmp_path / "home" / "bin" / "java").resolve() == program
    program.unlink()  # of an environment that is gone
    assert run("--home", "home") == 0


@pytest.mark.parametrize("words", [[], [""], ["a", "b"]])
def test_a_home_is_one_folder(capsys, words):
    assert run("--home", *words) == 2
    assert "--home takes one folder" in capsys.readouterr().err


@pytest.mark.parametrize("is_link", [True, False])
def test_the_home_of_another_java_is_left_alone(capsys, tmp_path, is_link):
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    if is_link:
        java.symlink_to("/usr/lib/jvm/17/bin/java")
    else:
        java.touch()
    assert run("--home", str(tmp_path / "jdk")) == 2
    assert f"{java} is another program" in capsys.readouterr().err
    assert java.is_symlink() is is_link


def test_a_home_that_cannot_be_made_is_said(capsys, tmp_path):
    (tmp_path / "file").touch()
    assert run("--home", str(tmp_path / "file")) == 2
    assert f"{tmp_path}/file" in capsys.readouterr().err


# -- the class path: what Java 17 finds


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("a.properties", "one/a.properties"),
        ("./a.properties", "one/a.properties"),
        ("b.properties", "two/b.properties"),
        ("sub/c.properties", "two/sub/c.properties"),
        ("sub/../b.properties", "two/sub/../b.properties"),
        ("top.properties", "top.properties"),
        ("../one/a.properties", "one/../one/a.properties"),
        ("sub", "sub"),
        ("missing", "missing"),
    ],
)
def test_a_file_is_found_in_the_first_folder_that_has_it(name, found, tmp_path, monkeypatch):
    for path in (
        "one/a.properties",
        "two/a.properties",
        "two/b.properties",
        "two/sub/c.properties",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    (tmp_path / "top.properties").touch()
    monkeypatch.chdir(tmp_path)
    assert on_class_path(name, ("nowhere", "a.jar", "one", "two", "")) == found


def test_a_name_does_not_leave_a_folder_of_the_class_path(folder):
    (folder / "app.properties").touch()
    assert on_class_path("../app.properties", [str(folder / "conf")]) == "../app.properties"


def test_an_absolute_path_is_not_looked_for(folder):
    path = str(folder / "conf" / "app.properties")
    assert on_class_path(path, ["/", str(folder / "conf")]) == path
