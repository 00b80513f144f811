"""What an app registers, and how its program is executed."""

import sys

import pytest

from mld.spark import pipeline as pipelines
from mld.spark.errors import ConfigError
from mld.spark.model import BatchContext, Position, ShardKey
from mld.spark.pipeline import Pipeline, SparkRecordProcessor, load_app, run
from protocol.child import (
    Checkpointer,
    InitializeInput,
    LeaseLostInput,
    ProcessRecordsInput,
    ShardEndedInput,
    ShutdownRequestedInput,
)

SHARD = ShardKey("app", "stream", "shardId-000000000000")
CHECKPOINTER = Checkpointer(None)
INPUTS = {
    "initialize": InitializeInput("shardId-000000000000", "TRIM_HORIZON", 0),
    "process_records": ProcessRecordsInput((), None, CHECKPOINTER),
    "lease_lost": LeaseLostInput(),
    "shard_ended": ShardEndedInput(CHECKPOINTER),
    "shutdown_requested": ShutdownRequestedInput(CHECKPOINTER),
}


class Feed:
    """Notes what reaches it."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda given: self.calls.append((name, given))


def context(stream="stream", shard="shardId-000000000000"):
    return BatchContext(None, "app", stream, shard, "id", None, None, Position(1), 1, False, None)


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
        "from mld.spark import run\n"
        "def process(df, ctx):\n    return df, ctx\n"
        "run(process, schema='id bigint', decoder='json', on_error='null')\n"
    )
    assert (found.schema, found.decoder, found.on_error) == ("id bigint", "json", "null")
    found.open(SHARD, Feed())
    assert found.process("df", context()) == ("df", context())


def test_what_is_not_given_is_left_to_the_properties(app):
    found = app("from mld.spark import run\nrun(print)\n")
    assert (found.schema, found.decoder, found.on_error) == (None, None, None)


def test_an_app_runs_as_it_would_from_the_command_line(app, tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7\n")
    found = app(
        "import beside, sys\nfrom mld.spark import run\n"
        "assert __name__ == '__main__'\n"
        "import __main__\nassert __main__.beside is beside\n"
        "if __name__ == '__main__':\n"
        "    run(lambda df, ctx: (sys.argv, __file__, beside.VALUE))\n",
        "an",
        "argument",
    )
    found.open(SHARD, Feed())
    path = str(tmp_path / "app.py")
    assert found.process(None, context()) == ([path, "an", "argument"], path, 7)
    assert sys.path[0] == str(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "did not call run()"),
        ("def", "is no Python program"),
        ("raise SystemExit('bye')", "ended before run(): exit code bye"),
        (
            "from mld.spark import run\ntry:\n    run(print)\nexcept BaseException:\n    pass",
            "last",
        ),
        (
            "from mld.spark import run\ntry:\n    run(print)\nexcept BaseException:\n    run(print)",
            "called twice",
        ),
        ("from mld.spark import run\nrun()", "either a function"),
        ("from mld.spark import run\nrun(print, processor=print)", "either a function"),
        ("from mld.spark import run\nrun(7)", "7 is no function"),
        ("from mld.spark import run\nrun(processor=7)", "7 cannot be called"),
        ("from mld.spark import run\nrun(print, decoder='xml')", "not one of raw, json"),
        ("from mld.spark import run\nrun(print, on_error='skip')", "not one of fail, null"),
        ("from mld.spark import run\nrun(print, schema=7)", "takes a text, not a int"),
        (
            "import mld.spark as m\nm.run(processor=m.SparkRecordProcessor())",
            "every shard needs its own",
        ),
        (
            "from mld.spark import SparkRecordProcessor, run\nrun(SparkRecordProcessor)",
            "run(processor=SparkRecordProcessor)",
        ),
    ],
)
def test_a_wrong_app_is_refused(app, text, message):
    with pytest.raises(ConfigError) as caught:
        app(text)
    assert message in str(caught.value)


def test_an_app_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="can't be read: No such file"):
        load_app(tmp_path / "none.py")


def test_what_an_app_raises_comes_out_as_it_is(app):
    with pytest.raises(ZeroDivisionError):
        app("1 / 0")
    assert pipelines._loading is None


def test_every_shard_has_a_processor_of_its_own(app):
    class Counting(SparkRecordProcessor):
        count = 0

        def process(self, df, ctx):
            self.count += 1
            return self.count

    found = Pipeline(Counting)
    other = ShardKey("app", "other stream", SHARD.shard_id)
    first, second = found.open(SHARD, Feed()), found.open(other, Feed())
    assert [found.process(None, context()) for _ in range(2)] == [1, 2]
    assert found.process(None, context("other stream")) == 1
    assert (first.count, second.count) == (2, 1)
    found.close(SHARD)
    found.close(SHARD)
    with pytest.raises(KeyError):
        found.process(None, context())


def test_a_factory_that_makes_something_else_is_refused():
    with pytest.raises(ConfigError, match="made a dict"):
        Pipeline(dict).open(SHARD, Feed())


@pytest.mark.parametrize("name", INPUTS)
def test_a_processor_that_overrides_nothing_feeds_the_records_on(name):
    feed = Feed()
    processor = Pipeline(SparkRecordProcessor).open(SHARD, feed)
    getattr(processor, name)(INPUTS[name])
    assert feed.calls == [(name, INPUTS[name])]


@pytest.mark.parametrize("name", INPUTS)
def test_a_processor_may_hook_a_message_and_call_super(name):
    seen = []

    def hook(self, given):
        seen.append(given)
        getattr(SparkRecordProcessor, name)(self, given)

    hooked = type("Hooked", (SparkRecordProcessor,), {name: hook})
    feed = Feed()
    getattr(Pipeline(hooked).open(SHARD, feed), name)(INPUTS[name])
    assert seen == [INPUTS[name]]
    assert feed.calls == [(name, INPUTS[name])]


def test_a_processor_without_process_says_what_is_missing():
    found = Pipeline(SparkRecordProcessor)
    found.open(SHARD, Feed())
    with pytest.raises(NotImplementedError, match="must override process"):
        found.process(None, context())


def test_a_processor_outside_the_host_says_so():
    with pytest.raises(RuntimeError, match="by the Spark host only"):
        SparkRecordProcessor().lease_lost(LeaseLostInput())


def test_run_in_a_program_without_a_file_is_refused(monkeypatch):
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    with pytest.raises(ConfigError, match="a program in a file"):
        run(print)
