"""The file with Spark's classes: whose it is, when it is used, who makes it, and that it breaks nothing."""

from __future__ import annotations

import os
import sys

import pytest

from mld.spark.server import class_archive
from mld.spark.server.class_archive import ClassArchive, private_cache
from mld.spark.server.java import JavaHome
from mld.spark.server.later import Later

#: Stands for Java: makes the file it is told to, of the list it is told of.
JAVA = """\
#!{python}
import os, sys
told = dict(word.partition("=")[::2] for word in sys.argv[1:])
assert "-Xshare:dump" in told
assert os.nice(0) == 19 and int(open("/proc/self/oom_score_adj").read()) == 1000
with open(told["-XX:SharedArchiveFile"], "w") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n" + open(told["-XX:SharedClassListFile"]).read())
"""


@pytest.fixture
def place(tmp_path):
    """A Java, jars, a server's directory, and a cache."""
    for name in ("java/bin", "jars", "server"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "java" / "release").write_text("17.0.1")
    (tmp_path / "jars" / "spark.jar").write_text("1")
    program = tmp_path / "java" / "bin" / "java"
    program.write_text(JAVA.format(python=sys.executable))
    program.chmod(0o700)
    return tmp_path


@pytest.fixture
def archive(place):
    made = []

    def make(*options, version=17, environ=None):
        java = JavaHome(place / "java", version, "test")
        environ = {"XDG_CACHE_HOME": str(place / "cache")} if environ is None else environ
        jars = [f"{place}/jars/*", "/conf"]
        found = ClassArchive.of(java, jars, options, environ, place / "server")
        if found is not None:
            made.append(found)
        return found

    yield make
    for each in made:
        each.close()


@pytest.fixture
def listed(monkeypatch, place):
    """The classes that a server has loaded, where memory is left."""
    monkeypatch.setattr(class_archive, "free_bytes", lambda: 2 * 1024**3)
    path = place / "server" / "classes.list"
    path.write_text("java/lang/Object id: 0\n")
    return path


def command(place, one):
    return [str(place / "java" / "bin" / "java"), "-Xmx1g", *one.options(), "-cp", "jars/*"]


def test_it_belongs_to_one_java_one_spark_and_its_options(archive, place):
    found = [archive().path, archive("-XX:+UseG1GC").path]
    (place / "jars" / "more.jar").write_text("2")
    found.append(archive().path)
    (place / "java" / "release").write_text("17.0.10")
    found.append(archive().path)
    assert len(set(found)) == 4
    assert archive().path == found[-1]
    assert found[0].parent == place / "cache" / "kcl-mld" / "classes"


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
def test_there_is_none_where_the_user_keeps_his_own(archive, option):
    assert archive(option) is None


def test_there_is_none_where_no_directory_is_the_users(archive, place):
    assert archive(environ={}) is None
    assert archive(environ={"XDG_CACHE_HOME": "relative"}) is None
    (place / "file").touch()
    assert archive(environ={"HOME": str(place / "file")}) is None


def test_a_directory_that_others_may_write_is_not_ours(place):
    """Java runs code from that file."""
    cache = private_cache({"HOME": str(place)})
    assert cache == place / ".cache" / "kcl-mld" / "classes"
    assert cache.stat().st_mode & 0o777 == 0o700
    cache.chmod(0o770)
    assert private_cache({"HOME": str(place)}) is None


@pytest.mark.parametrize(("version", "links"), [(17, False), (24, False), (25, True)])
def test_a_server_lists_its_classes_and_later_ones_use_the_file(
    archive, place, listed, version, links
):
    one = archive(version=version)
    words = command(place, one)
    assert words[2] == f"-XX:DumpLoadedClassList={listed}"
    assert ("-Xlog:aot*=off" in words) == links  # an older Java does not know the word
    one.begin(words)
    with listed.open("a") as file:  # the server's, which goes on writing
        file.write("java/la")
        file.flush()
        assert one.write()
        file.write("ng/String id: 1\n")
    line, *classes = one.path.read_text().splitlines()
    assert classes == ["java/lang/Object id: 0"]
    made = line.split()
    assert "-Xmx1g" in made
    assert ("-XX:+AOTClassLinking" in made) == links
    assert made[-2:] == ["-cp", "jars/*"]
    assert words[2] not in made
    assert one.path.stat().st_mode & 0o777 == 0o600
    assert archive(version=version).options()[0] == f"-XX:SharedArchiveFile={one.path}"
    assert not one.write()


def test_what_nobody_has_used_for_a_month_is_removed(archive, place, listed):
    one = archive()
    old, recent = one.path.with_name("spark-old.jsa"), one.path.with_name("spark-recent.jsa")
    for path in (old, recent):
        path.touch()
    os.utime(old, (0, 0))
    one.begin(command(place, one))
    assert one.write()
    assert recent.exists()
    assert not old.exists()


def test_of_several_hosts_one_writes(archive, place, listed):
    one = archive()
    one.begin(command(place, one))
    with class_archive._alone(one.path.with_suffix(".lock")) as is_alone:
        assert is_alone
        assert not one.write()
    assert not one.path.exists()
    assert one.write()


def test_a_file_that_came_meanwhile_stays(archive, place, listed, caplog):
    caplog.set_level("INFO")
    one = archive()
    one.path.write_text("another host's")
    one.begin(command(place, one))
    assert not one.write()
    one.path.unlink()
    assert not one.write()  # nobody waits for it
    assert "it was there when the server started" in caplog.text


def test_a_cache_that_is_gone_breaks_nothing(archive, place, listed, caplog):
    caplog.set_level("INFO")
    one = archive()
    one.begin(command(place, one))
    one.path.parent.rmdir()
    assert not one.write()
    assert "can't be kept for the next start" in caplog.text


@pytest.mark.parametrize("free", [1024**3, None])
def test_nothing_is_made_where_memory_is_short(archive, place, listed, monkeypatch, caplog, free):
    caplog.set_level("INFO")
    monkeypatch.setattr(class_archive, "free_bytes", lambda: free)
    one = archive()
    one.begin(command(place, one))
    assert not one.write()
    assert "too little memory is free" in caplog.text


def test_without_a_list_nothing_is_made(archive, place, listed, caplog):
    caplog.set_level("INFO")
    listed.unlink()
    one = archive()
    one.begin(command(place, one))
    assert not one.write()
    assert "it lists no classes" in caplog.text
    assert not one.path.exists()
    assert one._maker.run(30).startswith("1\n")  # it has waited: there is no list to take


def test_a_java_that_fails_leaves_no_half_of_a_file(archive, place, listed, caplog):
    caplog.set_level("INFO")
    program = place / "java" / "bin" / "java"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no memory')\n")
    one = archive()
    one.begin(command(place, one))
    assert not one.write()
    assert "1\nno memory" in caplog.text
    one.close()
    assert [path.suffix for path in one.path.parent.iterdir()] == [".lock"]


def test_a_server_that_ends_ends_who_would_have_made_it(archive, place):
    one = archive()
    one.begin(command(place, one))
    process = one._maker._waiting
    one.close()
    assert process.returncode is not None
    assert not one.write()


def test_who_waits_ends_with_its_parent(tmp_path):
    """Its standard input ends; it does nothing."""
    later = Later([sys.executable, "-c", f"open({str(tmp_path / 'made')!r}, 'w')"])
    with later._waiting as process:
        process.stdin.close()
        assert process.wait(120) == 0
    assert not (tmp_path / "made").exists()


def test_what_takes_too_long_is_ended():
    later = Later([sys.executable, "-c", "import time; time.sleep(600)"])
    process = later._waiting
    assert "timed out" in later.run(0.1)
    assert process.returncode is not None


def test_a_command_that_is_not_there_is_told(tmp_path):
    later = Later([str(tmp_path / "java")])
    assert "No such file" in later.run(30)
    assert later.run(30) == "it could not be started"
