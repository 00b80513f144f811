"""The file with Spark's classes: whose it is, when it is used, and that it never breaks a start."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from mld.spark.server import class_archive
from mld.spark.server.class_archive import ClassArchive, private_cache
from mld.spark.server.java import JavaHome


@pytest.fixture
def place(tmp_path):
    """A Java with an archive of its own, jars, and a cache."""
    server = tmp_path / "java" / "lib" / "server"
    server.mkdir(parents=True)
    (server / "classes.jsa").touch()
    (tmp_path / "java" / "release").write_text("17.0.1")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark.jar").write_text("1")
    return tmp_path


def archive(place, *options, environ=None):
    java = JavaHome(place / "java", 17, "test")
    environ = {"XDG_CACHE_HOME": str(place / "cache")} if environ is None else environ
    return ClassArchive.of(java, [str(place / "jars" / "*"), "/conf"], options, environ)


def test_it_belongs_to_one_java_one_spark_and_its_options(place):
    found = [archive(place).path, archive(place, "-XX:+UseG1GC").path]
    (place / "jars" / "more.jar").write_text("2")
    found.append(archive(place).path)
    (place / "java" / "release").write_text("17.0.10")
    found.append(archive(place).path)
    assert len(set(found)) == 4
    assert archive(place).path == found[-1]
    assert found[0].parent == place / "cache" / "kcl-mld" / "classes"


def test_there_is_none_where_it_would_not_work(place):
    assert archive(place, "-Xshare:off") is None
    assert archive(place, "-XX:SharedArchiveFile=/x") is None
    assert archive(place, environ={}) is None
    assert archive(place, environ={"XDG_CACHE_HOME": "relative"}) is None
    (place / "file").touch()
    assert archive(place, environ={"HOME": str(place / "file")}) is None
    (place / "java" / "lib" / "server" / "classes.jsa").unlink()
    assert archive(place) is None


def test_a_directory_that_others_may_write_is_not_ours(place):
    """Java runs code from that file."""
    cache = private_cache({"HOME": str(place)})
    assert cache == place / ".cache" / "kcl-mld" / "classes"
    assert cache.stat().st_mode & 0o777 == 0o700
    cache.chmod(0o770)
    assert private_cache({"HOME": str(place)}) is None


def test_a_server_uses_it_or_is_able_to_write_it(place):
    one = archive(place)
    assert one.options()[0] == "-XX:+RecordDynamicDumpInfo"
    one.path.touch()
    assert one.options()[0] == f"-XX:SharedArchiveFile={one.path}"


class Java:
    """Listens as a JVM does, and writes the file it is told to."""

    def __init__(self, folder, *, writes=True):
        self.asked = []
        self._writes = writes
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(folder / f".java_pid{os.getpid()}"))
        self._socket.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                words = connection.recv(4096).split(b"\0")
                self.asked.append(words)
                if self._writes:
                    Path(words[2].decode().rpartition(" ")[2]).write_text("classes")
                connection.sendall(b"0\nits answer")

    def close(self):
        self._socket.close()


@pytest.fixture
def java(place, monkeypatch):
    monkeypatch.setattr(class_archive, "_ATTACH_DIRECTORY", place)
    started = []

    def start(**more):
        started.append(Java(place, **more))
        return started[-1]

    yield start
    for each in started:
        each.close()


def test_it_is_written_once_whoever_asks(place, java):
    one, server = archive(place), java()
    old, recent = one.path.with_name("spark-old.jsa"), one.path.with_name("spark-recent.jsa")
    for path in (old, recent):
        path.touch()
    os.utime(old, (0, 0))
    assert one.write(os.getpid())
    assert one.path.read_text() == "classes"
    assert one.path.stat().st_mode & 0o777 == 0o600
    assert not one.write(os.getpid())
    (asked,) = server.asked
    assert asked[:2] == [b"1", b"jcmd"]
    assert asked[2].startswith(b"VM.cds dynamic_dump ")
    assert recent.exists()
    assert not old.exists()


def test_of_several_hosts_one_writes(place, java):
    one, server = archive(place), java()
    with class_archive._alone(one.path.with_suffix(".lock")) as is_alone:
        assert is_alone
        assert not one.write(os.getpid())
    assert server.asked == []


def test_a_java_that_keeps_none_is_told_and_nothing_breaks(place, java, caplog):
    caplog.set_level("INFO")
    java(writes=False)
    assert not archive(place).write(os.getpid())
    assert "Java keeps no archive of Spark's classes: 0\nits answer" in caplog.text
    assert not archive(place).path.exists()


def test_a_java_that_does_not_listen_breaks_nothing(place, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr(class_archive, "_ATTACH_DIRECTORY", place)
    monkeypatch.setattr(class_archive, "_ATTACH_S", 0.1)
    signals = []
    monkeypatch.setattr(class_archive.os, "kill", lambda *sent: signals.append(sent))
    began = time.monotonic()
    assert not archive(place).write(os.getpid())
    assert time.monotonic() - began < 5
    assert len(signals) == 1
    assert "can't be kept for the next start" in caplog.text
    assert not list(place.glob(".attach_pid*"))
