"""The words that Java takes options from; the results are those of OpenJDK 17."""

import pytest

from kcl_mld.errors import ConfigError
from kcl_mld.ops.rules.java_words import words_of_file, words_of_variable


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \n\t", []),
        ("-Xmx1g  -cp a\n-Da=1", ["-Xmx1g", "-cp", "a", "-Da=1"]),
        ("# all of it\n-Da=1 # the rest\n-Db=2", ["-Da=1", "-Db=2"]),
        ("-Da='x # y'\"z w\" 'one word'", ["-Da=x # yz w", "one word"]),
        (r'"c:\\x\t\n\q" c:\x', ["c:\\x\t\nq", "c:\\x"]),
        ('"one\\\n   two" three', ["onetwo", "three"]),
        ('"one\\\r\n   two" three', ["onetwo", "three"]),
        ("'is closed by the end of\nthe line", ["is closed by the end of", "the", "line"]),
        ("'' \"\"", ["", ""]),
    ],
)
def test_an_argument_file_has_words(text, words):
    assert words_of_file(text) == words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  -Da=1\t-Xmx1g\n", ["-Da=1", "-Xmx1g"]),
        ("-Da=\"p q\"r '-Db=x y' -Dc=\\x", ["-Da=p qr", "-Db=x y", "-Dc=\\x"]),
        ("-Da=#b", ["-Da=#b"]),
        ('"it\'s"', ["it's"]),
    ],
)
def test_a_variable_has_words(text, words):
    assert words_of_variable(text, "JAVA_TOOL_OPTIONS") == words


@pytest.mark.parametrize("text", ['-Da=1 "-Db=2', "it's"])
def test_an_open_quote_of_a_variable_is_an_error(text):
    with pytest.raises(ConfigError, match="Unmatched quote in JAVA_TOOL_OPTIONS"):
        words_of_variable(text, "JAVA_TOOL_OPTIONS")
