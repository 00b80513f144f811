"""The file with Spark's classes: whose it is, when it is used, who makes it, and that it breaks nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kcl_mld.spark.errors import SparkConfigError, SparkUnreachable
from kcl_mld.spark.server import warm as command
from kcl_mld.spark.server.java import JavaHome
from kcl_mld.spark.server.setup import archive_options, archive_path, private_cache
from kcl_mld.spark.server.warm import warm
from tests.unit.spark.batches import config_of

#: Stands for Java: says who it is, and makes the file it is told to, of the list it is told of.
JAVA = """\
#!{python}
import sys
told = dict(word.partition("=")[::2] for word in sys.argv[1:])
assert "-Xshare:dump" in told
with open(told["-XX:SharedArchiveFile"], "w") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n" + open(told["-XX:SharedClassListFile"]).read())
"""


@pytest.fixture
def place(tmp_path):
    """A Java, jars, the classes that a server has loaded, and a cache."""
    for name in ("java/bin", "jars"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "java" / "release").write_text("17.0.1")
    (tmp_path / "jars" / "spark.jar").write_text("1")
    (tmp_path / "classes.list").write_text("java/lang/Object id: 0\n")
    program = tmp_path / "java" / "bin" / "java"
    program.write_text(JAVA.format(python=sys.executable))
    program.chmod(0o700)
    return tmp_path


@pytest.fixture
def path_of(place):
    def find(*options, environ=None, **more):
        environ = {"XDG_CACHE_HOME": str(place / "cache")} if environ is None else environ
        config = config_of(jvm__options=" ".join(options), **more)
        java = JavaHome(place / "java", 17, "test")
        return archive_path(config, java, [f"{place}/jars/*", "/conf"], environ)

    return find


def test_it_belongs_to_one_java_one_spark_and_its_options(path_of, place):
    found = [path_of(), path_of("-XX:+UseG1GC")]
    (place / "jars" / "more.jar").write_text("2")
    found.append(path_of())
    (place / "java" / "release").write_text("17.0.10")
    found.append(path_of())
    assert len(set(found)) == 4
    assert path_of() == found[-1]
    assert found[0].parent == place / "cache" / "kcl-mld" / "classes"


def test_a_layer_of_an_image_that_keeps_whole_seconds_changes_nothing(path_of, place):
    jar = place / "jars" / "spark.jar"
    os.utime(jar, ns=(0, 1_700_000_000_123_456_789))
    built = path_of()
    os.utime(jar, ns=(0, 1_700_000_000_000_000_000))
    assert path_of() == built


@pytest.mark.parametrize(
    "option",
    [
        "-Xshare:off",
        "-XX:SharedArchiveFile=/x",
        "-XX:DumpLoadedClassList=/x",
        "-XX:AOTCache=/x",
        "-Xlog:aot",
    ],
)
def test_there_is_none_where_the_user_keeps_his_own(path_of, option):
    assert path_of(option) is None


def test_there_is_none_where_nobody_wants_it_or_no_directory_is_the_users(path_of, place):
    assert path_of(jvm__classArchive="false") is None
    assert path_of(environ={}) is None
    assert path_of(environ={"XDG_CACHE_HOME": "relative"}) is None
    (place / "file").touch()
    assert path_of(environ={"HOME": str(place / "file")}) is None


def test_a_directory_that_others_may_write_is_not_ours(place):
    """Java runs code from that file."""
    cache = private_cache({"HOME": str(place)})
    assert cache == place / ".cache" / "kcl-mld" / "classes"
    assert cache.stat().st_mode & 0o777 == 0o700
    cache.chmod(0o770)
    assert private_cache({"HOME": str(place)}) is None


@pytest.mark.parametrize(("version", "links"), [(17, False), (24, False), (25, True)])
def test_a_server_uses_the_file_where_it_is(path_of, place, version, links):
    java, path = JavaHome(place / "java", version, "test"), path_of()
    assert archive_options(path, java) == archive_options(None, java) == []
    path.touch()
    found = archive_options(path, java)
    assert found[0] == f"-XX:SharedArchiveFile={path}"
    assert ("-Xlog:aot*=off" in found) == links  # an older Java does not know the word


@pytest.mark.parametrize("links", [False, True])
def test_java_makes_the_file_of_a_list(path_of, place, links):
    path, words = path_of(), [str(place / "java" / "bin" / "java"), "-Xmx1g", "-cp", "jars/*"]
    said = command._make(words, place / "classes.list", path, links=links)
    assert said.startswith(f"{path}: 0 MiB")
    line, *classes = path.read_text().splitlines()
    assert classes == ["java/lang/Object id: 0"]
    made = line.split()
    assert ("-XX:+AOTClassLinking" in made) == links
    assert made[-3:] == words[1:]
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys\nsys.exit('no memory')\n", r"exit code 1\): no memory"),
        ("import time\ntime.sleep(600)\n", "timed out"),
    ],
)
def test_a_java_that_fails_leaves_no_half_of_a_file(path_of, place, monkeypatch, program, why):
    monkeypatch.setattr(command, "_CREATE_S", 2.0)
    java = place / "java" / "bin" / "java"
    java.write_text(f"#!{sys.executable}\n{program}")
    with pytest.raises(SparkUnreachable, match=f"Java makes no file.*{why}"):
        command._make([str(java)], place / "classes.list", path_of(), links=False)
    assert list(path_of().parent.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ("spark.remote = sc://h:1", "a server that is not ours"),
        ("spark.jvm.classArchive = false", "or spark.jvm.classArchive is false"),
        ("spark.nonsense = 1", "no such property"),
    ],
)
def test_a_file_of_classes_that_nobody_would_use_is_not_made(tmp_path, capsys, lines, why):
    (tmp_path / "f").write_text(lines)
    assert command.main(["warm", "--properties", str(tmp_path / "f")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kcl-mld-spark warm: ")
    assert why in said.err


def test_without_a_directory_of_the_users_own_the_command_says_so(monkeypatch):
    monkeypatch.setattr(
        "kcl_mld.spark.server.setup.find_java", lambda *_: JavaHome(Path("/j"), 17, "")
    )
    with pytest.raises(SparkConfigError, match="no directory in XDG_CACHE_HOME or HOME"):
        warm(config_of(), {})


def test_a_file_that_is_there_is_not_made_again(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "kcl_mld.spark.server.setup.find_java", lambda *_: JavaHome(Path("/j"), 17, "")
    )
    monkeypatch.setattr("kcl_mld.spark.server.setup.archive_path", lambda *_: tmp_path / "made")
    (tmp_path / "made").touch()
    assert warm(config_of(), {}) == f"{tmp_path}/made is there; remove it to have it made anew"
