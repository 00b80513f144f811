"""Executing an app in the process that serves shards: before there is a session, if it can be."""

import contextlib
import sys
from pathlib import Path

import pytest

import kcl_mld.spark
from kcl_mld.spark import app_loading
from kcl_mld.spark.app_loading import CONNECT_VARIABLE, load, require_packages
from kcl_mld.spark.config import read_properties
from kcl_mld.spark.errors import MissingPart, SparkConfigError, SparkUnreachable

RUN = "from kcl_mld.spark import run\nrun(print, schema='id bigint')\n"
NEEDS_A_SESSION = """
import pathlib
from pyspark.errors import PySparkRuntimeError
if not pathlib.Path(__file__).with_name("session").exists():
    raise PySparkRuntimeError(errorClass="NO_ACTIVE_OR_DEFAULT_SESSION", messageParameters={})
"""


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Writes a program and loads it; the interpreter is as before afterwards."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv(CONNECT_VARIABLE, "")
    monkeypatch.delenv(CONNECT_VARIABLE)

    @contextlib.contextmanager
    def session():
        (tmp_path / "session").touch()
        yield
        (tmp_path / "closed").touch()

    def write_and_load(text, session=session):
        (tmp_path / "app.py").write_text(text)
        return load(str(tmp_path / "app.py"), [], session)

    return write_and_load


def no_session():
    raise SparkUnreachable("nobody answers")


def test_columns_windows_and_udfs_may_be_made_at_the_top_level_without_a_session(app):
    made = """
from pyspark.sql import functions as F, types as T, Window
COLUMN = F.col("amount") > 0
WINDOW = Window.partitionBy("user").orderBy("n")
F.udf(lambda number: number, T.LongType())
F.pandas_udf(lambda series: series, T.DoubleType())
"""
    assert app(made + RUN, no_session).schema == "id bigint"


def test_an_app_that_needs_a_session_is_executed_again_with_one_that_is_closed_afterwards(
    app, tmp_path
):
    assert app(NEEDS_A_SESSION + RUN).schema == "id bigint"
    assert (tmp_path / "closed").exists()


def test_what_keeps_the_session_away_is_the_error(app):
    with pytest.raises(SparkUnreachable, match="nobody answers"):
        app(NEEDS_A_SESSION + RUN, no_session)


def test_an_app_that_raises_is_wrong_and_its_traceback_is_in_the_log(app, caplog):
    with pytest.raises(SparkConfigError, match=r"app\.py failed: KeyError: 'no such flight'"):
        app("raise KeyError('no such flight')\n")
    assert "before run()" in caplog.text
    assert caplog.records[-1].exc_info


def test_an_app_without_run_is_told_as_it_is(app):
    with pytest.raises(SparkConfigError, match="did not call run"):
        app("pass\n")


def test_variables_that_lead_pyspark_elsewhere_are_taken_away(app, monkeypatch):
    monkeypatch.setenv("MASTER", "spark://far:7077")
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "")
    app("import os\nassert 'MASTER' not in os.environ\n" + RUN)


def test_an_app_that_makes_a_session_is_told_where_there_is_one(app):
    own = "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\n"
    with pytest.raises(SparkConfigError, match=r"use ctx\.spark"):
        app(own + RUN)


@pytest.mark.parametrize(
    ("lacks", "told"),
    [
        ("pyspark", "pyspark is missing: pip install 'kcl-mld[spark]'"),
        ("deltalake", "deltalake is missing: pip install 'kcl-mld[spark]'"),
        ("psycopg", "psycopg is missing: pip install 'kcl-mld[postgres]'"),
    ],
)
def test_a_missing_package_is_named_with_the_way_to_get_it(monkeypatch, lacks, told):
    config = read_properties({"spark.sink": "jdbc" if lacks == "psycopg" else "delta"})
    require_packages(config)
    find = app_loading.importlib.util.find_spec
    monkeypatch.setattr(
        app_loading.importlib.util, "find_spec", lambda name: None if name == lacks else find(name)
    )
    with pytest.raises(MissingPart) as caught:
        require_packages(config)
    assert str(caught.value) == told


@pytest.fixture
def elsewhere(monkeypatch):
    """No checkout is on the path, whose folder has the former name."""
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    monkeypatch.setattr(sys, "path", [one for one in sys.path if not (Path(one) / "mld").is_dir()])
    for name in [one for one in sys.modules if one.partition(".")[0] == "mld"]:
        monkeypatch.delitem(sys.modules, name)
    yield
    for name in ("mld", "mld.spark"):
        sys.modules.pop(name, None)


def test_an_app_of_before_1_0_is_loaded(elsewhere, app):
    given = app(RUN.replace("kcl_mld", "mld"))
    assert given.function is print
    assert sys.modules["mld.spark"] is kcl_mld.spark
    assert app(RUN.replace("kcl_mld", "mld")).function is print


def test_a_module_of_the_users_precedes_the_former_name(elsewhere, app, tmp_path):
    (tmp_path / "mld.py").write_text("OWNER = 'the user'\n")
    app("import mld\nassert mld.OWNER == 'the user'\n" + RUN)
