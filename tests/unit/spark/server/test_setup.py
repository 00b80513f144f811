"""What a server is given before it starts: files that are private, a command line without secrets."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

import pytest

from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import MissingPart, SparkUnreachable
from kcl_mld.spark.server.java import JavaHome
from kcl_mld.spark.server.setup import prepare

JAVA = JavaHome(Path("/java"), 17, "a test")
JAVA_25 = JavaHome(Path("/java"), 25, "a test")


@pytest.fixture
def prepared(tmp_path, monkeypatch):
    """Prepare a server on a Java that nobody asks anything."""
    monkeypatch.setattr("kcl_mld.spark.server.setup.find_java", lambda *_: JAVA)

    def make(properties=None, environ=None):
        return prepare(
            read_properties(properties or {}),
            tmp_path,
            {"PATH": os.defpath, **(environ or {})},
            app_name="a test",
        )

    return make


def test_the_token_is_told_through_the_environment_and_shown_nowhere(prepared):
    setup = prepared()
    assert setup.token in setup.environ.values()
    assert not any(setup.token in word for word in setup.command)
    assert setup.token not in repr(setup)


def test_each_setup_has_a_token_of_its_own(prepared):
    assert prepared().token != prepared().token


def test_every_file_can_be_read_by_us_only(prepared, tmp_path):
    repository = {"KCL_MLD_MAVEN_REPOSITORY": "http://127.0.0.1:1/maven"}
    prepared({"spark.conf.spark.hadoop.key": "kept-secret"}, repository)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert sum("kept-secret" in path.read_text() for path in files) == 1


@pytest.mark.parametrize(
    ("properties", "is_named"), [({}, False), ({"spark.conf.spark.jars.packages": "a:b:1"}, True)]
)
def test_packages_come_by_ivy_settings_of_our_own(prepared, tmp_path, properties, is_named):
    """Spark's own look into the local Maven cache first, where a jar may be missing."""
    prepared(properties)
    written = (tmp_path / "spark.properties").read_text()
    assert (f"spark.jars.ivySettings={tmp_path}/ivysettings.xml" in written) is is_named


def test_a_file_that_lies_there_is_replaced_and_not_followed(prepared, tmp_path):
    prepared()
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        path.unlink()
        path.symlink_to(tmp_path / "elsewhere")
    prepared()
    assert not (tmp_path / "elsewhere").exists()


def test_a_local_server_shows_its_pages_on_loopback_only(prepared):
    assert prepared().environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert "SPARK_LOCAL_IP" not in prepared({"spark.master": "yarn"}).environ


def test_a_master_that_is_not_there_is_told_before_anything_is_written(prepared, tmp_path):
    with pytest.raises(SparkUnreachable):
        prepared({"spark.master": "spark://127.0.0.1:1"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["{}/x.jar", "file:{}/x.jar", "file://{}/x.jar", "{}/x*.jar"])
def test_a_jar_that_is_not_there_is_told_before_spark_only_warns_of_it(prepared, tmp_path, form):
    jar = form.format(tmp_path)
    conf = {"spark.conf.spark.jars": f"https://somewhere/y.jar, {jar}"}
    with pytest.raises(MissingPart) as caught:
        prepared(conf)
    assert str(caught.value) == (
        f"spark.conf.spark.jars: {jar} is not there: correct the path or put the jar in its place"
    )
    (tmp_path / "x.jar").touch()
    assert prepared(conf).command


def test_jars_of_other_machines_are_sparks_own_affair(prepared):
    assert prepared({"spark.conf.spark.jars": "hdfs:/a.jar,local:/b.jar,s3a://c/d.jar"}).command


def test_without_pyspark_the_error_names_what_to_install(prepared, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(MissingPart, match=r"pyspark is missing: pip install 'kcl-mld\[spark\]'"):
        prepared()


def test_the_client_alone_has_no_server(prepared, monkeypatch, tmp_path):
    (tmp_path / "lib" / "pyspark").mkdir(parents=True)
    (tmp_path / "lib" / "pyspark" / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "lib")
    with pytest.raises(MissingPart, match=r"has no server: .* or name an existing server in spark"):
        prepared()


def test_a_server_uses_the_classes_that_are_kept(prepared, tmp_path):
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    first = prepared(environ=environ)
    assert not [word for word in first.command if "Shared" in word]
    first.archive.touch()
    used = prepared(environ=environ)
    assert f"-XX:SharedArchiveFile={used.archive}" in used.command
    assert prepared({"spark.jvm.classArchive": "false"}, environ).archive is None
