"""Words of Structured Streaming in an app, told before a record is there."""

import logging
import sys
from contextlib import nullcontext

import pytest

from mld.spark import app_loading
from mld.spark.streaming_words import MEANINGLESS, Word, streaming_words

APP = """\
from mld.spark import run

def process(df, ctx):
    late = df.withWatermark("at", "1 minute")
    def inner():
        return late.dropDuplicatesWithinWatermark(["user"])
    return late.withWatermark("at", "2 minutes")

class Writer:
    def start(self, df):
        if not df.isStreaming:
            (df
             .writeStream
             .trigger(once=True))

run(process)
"""


def test_each_word_is_found_once_wherever_it_stands():
    words = streaming_words(compile(APP, "app.py", "exec"))
    assert [(word.name, word.line) for word in words] == [
        ("withWatermark", 4),
        ("dropDuplicatesWithinWatermark", 6),
        ("isStreaming", 11),
        ("writeStream", 13),
    ]
    assert str(words[0]).startswith("withWatermark (line 4) is ignored by Spark: a batch has no")


def test_a_batch_program_is_not_told_of():
    source = "def process(df, ctx):\n    return df.groupBy('a').count().where('count > 1')\n"
    assert streaming_words(compile(source, "app.py", "exec")) == []
    text_only = "x = 'withWatermark'\nwithWatermark = 1\n"
    assert streaming_words(compile(text_only, "app.py", "exec")) == []


@pytest.mark.parametrize("name", MEANINGLESS)
def test_each_word_says_what_to_do(name):
    assert len(str(Word(name, 1)).split()) > 6


def test_an_app_is_told_once_when_it_is_loaded(tmp_path, caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", list(sys.path))
    path = tmp_path / "app.py"
    path.write_text(APP)
    with caplog.at_level(logging.WARNING):
        app_loading.load(str(path), (), nullcontext)
    told = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert len(told) == 4
    assert told[0].startswith(f"the app {path}: withWatermark (line 4) is ignored by Spark")
