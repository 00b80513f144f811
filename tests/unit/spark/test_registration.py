"""How an app's program is executed, and what it hands over."""

import sys

import pytest

from kcl_mld.spark import registration
from kcl_mld.spark.batch_context import BatchContext
from kcl_mld.spark.errors import SparkConfigError
from kcl_mld.spark.model import Position, ShardKey
from kcl_mld.spark.registration import load_app, run

SHARD = ShardKey("app", "stream", "shardId-000000000000")
CONTEXT = BatchContext(
    None, "app", SHARD.stream, SHARD.shard_id, "id", None, Position(1), 1, False, None
)


@pytest.fixture
def app(tmp_path, monkeypatch):
    """Writes a program and loads it; the interpreter is as before afterwards."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def load(text, *args, name="app.py"):
        (tmp_path / name).write_text(text)
        return load_app(tmp_path / name, args)

    return load


def test_an_app_registers_its_function_and_how_records_are_decoded(app):
    found = app(
        "from kcl_mld.spark import run\n"
        "def process(df, ctx):\n    return df, ctx\n"
        "run(process, schema='id bigint', decoder='json', on_error='null')\n"
    )
    assert (found.schema, found.decoder, found.on_error) == ("id bigint", "json", "null")
    assert found.function("df", CONTEXT) == ("df", CONTEXT)


def test_what_is_not_given_is_left_to_the_properties(app):
    found = app("from kcl_mld.spark import run\nrun(print)\n")
    assert (found.schema, found.decoder, found.on_error) == (None, None, None)
    assert (found.function, found.is_rowwise) == (print, False)


def test_a_function_may_be_declared_row_wise(app):
    assert app("from kcl_mld.spark import run\nrun(print, rowwise=True)\n").is_rowwise


def test_an_app_runs_as_it_would_from_the_command_line(app, tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    found = app(
        "import beside, sys\nfrom kcl_mld.spark import run\n"
        "assert __name__ == '__main__'\n"
        "import __main__\nassert __main__.beside is beside\n"
        "if __name__ == '__main__':\n"
        "    run(lambda df, ctx: (sys.argv, __file__, beside.VALUE))\n",
        "an",
        "argument",
    )
    path = str(tmp_path / "app.py")
    assert found.function(None, CONTEXT) == ([path, "an", "argument"], path, 7)
    assert sys.path[0] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "did not call run()"),
        ("def", "is not a Python program"),
        ("raise SystemExit('bye')", "ended before run(): exit code bye"),
        (
            "from kcl_mld.spark import run\ntry:\n    run(print)\nexcept BaseException:\n    pass",
            "last",
        ),
        (
            "from kcl_mld.spark import run\ntry:\n    run(print)\nexcept BaseException:\n    run(print)",
            "called twice",
        ),
        ("from kcl_mld.spark import run\nrun(7)", "7 is not a function"),
        ("from kcl_mld.spark import run\nrun(print, decoder='xml')", "not one of raw, json"),
        ("from kcl_mld.spark import run\nrun(print, on_error='skip')", "not one of fail, null"),
        ("from kcl_mld.spark import run\nrun(print, schema=7)", "takes a text, not a int"),
        (
            "from kcl_mld.spark import run\nrun(dict)",
            "is not a function process(df, ctx)",
        ),
    ],
)
def test_a_wrong_app_is_refused(app, text, message):
    with pytest.raises(SparkConfigError) as caught:
        app(text)
    assert message in str(caught.value)


def test_an_app_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(SparkConfigError, match="can't be read: No such file"):
        load_app(tmp_path / "none.py")


def test_what_an_app_raises_comes_out_as_it_is(app):
    with pytest.raises(ZeroDivisionError):
        app("1 / 0")
    assert registration._loading is None


def test_run_in_a_program_without_a_file_is_refused(monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(SparkConfigError, match="a program in a file"):
        run(print)
