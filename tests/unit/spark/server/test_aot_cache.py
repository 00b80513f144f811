"""Java 25's file: when it is used, who makes it, and that nothing is left where it is not made."""

from __future__ import annotations

import sys

import pytest

from mld.spark.server import aot_cache
from mld.spark.server.aot_cache import AotCache
from mld.spark.server.java import JavaHome
from mld.spark.server.later import Later

#: Stands for Java: makes the cache it is told to, of the list it is told of.
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
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="25.0.2"\n')
    program = tmp_path / "java" / "bin" / "java"
    program.write_text(JAVA.format(python=sys.executable))
    program.chmod(0o700)
    return tmp_path


@pytest.fixture
def cache(place):
    made = []

    def make(*options):
        java = JavaHome(place / "java", 25, "test")
        environ = {"XDG_CACHE_HOME": str(place / "cache")}
        found = AotCache.beside(java, [f"{place}/jars/*"], options, environ, place / "server")
        if found is not None:
            made.append(found)
        return found

    yield make
    for each in made:
        each.close()


@pytest.fixture
def listed(monkeypatch, place):
    """The classes that a server has loaded, where memory is left."""
    monkeypatch.setattr(aot_cache, "free_bytes", lambda: 2 * 1024**3)
    path = place / "server" / "classes.list"
    path.write_text("java/lang/Object id: 0\n")
    return path


def command(place, one):
    return [str(place / "java" / "bin" / "java"), "-Xmx1g", *one.options(), "-cp", "jars/*"]


def test_it_belongs_to_one_java_and_its_options_and_needs_no_archive_of_java(cache):
    assert cache("-XX:+UseSerialGC").path != cache("-XX:+UseG1GC").path
    assert cache().path.suffix == ".aot"
    assert cache("-XX:AOTCache=/x") is None
    assert cache("-Xlog:aot") is None


def test_a_server_lists_its_classes_and_later_ones_use_the_cache(cache, place, listed):
    one = cache()
    words = command(place, one)
    assert words[2] == f"-XX:DumpLoadedClassList={listed}"
    one.begin(words)
    with listed.open("a") as file:  # the server's, which goes on writing
        file.write("java/la")
        file.flush()
        assert one.write(4711)
        file.write("ng/String id: 1\n")
    line, *classes = one.path.read_text().splitlines()
    assert classes == ["java/lang/Object id: 0"]
    made = line.split()
    assert "-Xmx1g" in made
    assert made[-2:] == ["-cp", "jars/*"]
    assert words[2] not in made
    assert one.path.stat().st_mode & 0o777 == 0o600
    assert cache().options()[0] == f"-XX:SharedArchiveFile={one.path}"
    assert not one.write(4711)


@pytest.mark.parametrize("free", [1024**3, None])
def test_nothing_is_made_where_memory_is_short(cache, place, listed, monkeypatch, caplog, free):
    caplog.set_level("INFO")
    monkeypatch.setattr(aot_cache, "free_bytes", lambda: free)
    one = cache()
    one.begin(command(place, one))
    assert not one.write(4711)
    assert "too little memory is free" in caplog.text


def test_without_a_list_nothing_is_made(cache, place, listed, caplog):
    caplog.set_level("INFO")
    listed.unlink()
    one = cache()
    one.begin(command(place, one))
    assert not one.write(4711)
    assert "it lists no classes" in caplog.text
    assert not one.path.exists()
    assert one._maker.run(30).startswith("1\n")  # it has waited: there is no list to take


def test_a_java_that_fails_leaves_no_half_of_a_file(cache, place, listed, caplog):
    caplog.set_level("INFO")
    program = place / "java" / "bin" / "java"
    program.write_text(f"#!{sys.executable}\nimport sys\nsys.exit('no memory')\n")
    one = cache()
    one.begin(command(place, one))
    assert not one.write(4711)
    assert "1\nno memory" in caplog.text
    one.close()
    assert [path.suffix for path in one.path.parent.iterdir()] == [".lock"]


def test_a_server_that_ends_ends_who_would_have_made_it(cache, place):
    one = cache()
    one.begin(command(place, one))
    process = one._maker._waiting
    one.close()
    assert process.returncode is not None
    assert not one.write(4711)


def test_who_waits_ends_with_its_parent(tmp_path):
    """Its standard input ends; it does nothing."""
    later = Later([sys.executable, "-c", f"open({str(tmp_path / 'made')!r}, 'w')"])
    with later._waiting as process:
        process.stdin.close()
        assert process.wait(30) == 0
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
