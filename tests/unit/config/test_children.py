"""The properties of several children of a shard."""

import pytest

from kcl_mld.children.rules.child_environment import announced_to
from kcl_mld.config.config import ChildConfirms
from kcl_mld.config.findings import Severity
from kcl_mld_protocol.additions import FAILURE
from tests.unit.config.test_config_build import built, config

MANY = {"multiStream": "true", "without": ("streamName",)}
LETTERS = ("childFailurePolicy = deadletter", "onFailureDestination = file:letters")
SPARK = "executableName = kcl-mld-spark app.py"


def found(*lines, **more):
    """Key, text and whether it names a line, of each error."""
    result = built(*lines, **more)
    errors = [one for one in result.findings if one.severity is Severity.ERROR]
    assert (result.config is None) == bool(errors)
    return [(one.key, one.text, one.line is not None) for one in errors]


def many(*lines):
    return found("streams = orders, clicks", *lines, **MANY)


def test_a_shard_has_one_child_unless_the_file_says_otherwise():
    assert config().child.per_shard == 1
    assert config().child.confirms is ChildConfirms.CHECKPOINT
    child = config("childrenPerShard = 32", "childConfirms = status").child
    assert (child.per_shard, child.confirms) == (32, ChildConfirms.STATUS)
    assert config("childrenPerShard = 1").child.per_shard == 1
    assert config("childConfirms = checkpoint").child.confirms is ChildConfirms.CHECKPOINT


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0", "0, but the smallest value that works is 1"),
        ("33", "33, but the largest value that works is 32"),
        ("two", 'For input string: "two"'),
    ],
)
def test_a_number_of_children_out_of_range(text, why):
    assert found(f"childrenPerShard = {text}") == [("childrenPerShard", why, True)]


@pytest.mark.parametrize("text", ["0", "33", "100", "-1", "01", "two", ""])
def test_a_number_of_children_of_one_stream_out_of_range(text):
    why = f"{text!r} is not a whole number from 1 to 32"
    assert many(f"stream.orders.childrenPerShard = {text}") == [
        ("stream.orders.childrenPerShard", why, True)
    ]


def test_a_stream_may_have_its_own_number_of_children():
    lines = ("stream.orders.childrenPerShard = 8", "stream.c*.childrenPerShard = 1")
    several = config("streams = orders, clicks, views", "childrenPerShard = 4", *lines, **MANY)
    assert several.streams.options_of("orders").children == 8
    assert several.streams.options_of("views").children is None
    names = ("orders", "clicks", "views")
    assert [several.children_of(name) for name in names] == [8, 1, 4]
    assert config("childrenPerShard = 3").children_of("any") == 3
    assert several.has_several_children
    assert config("childrenPerShard = 3").has_several_children
    own = config("streams = orders", "stream.orders.childrenPerShard = 2", **MANY)
    assert own.has_several_children
    none = config("streams = orders", "stream.orders.executableName = x", **MANY)
    assert not none.has_several_children
    assert not config().has_several_children


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        (("childrenPerShard = 2",), "childrenPerShard"),
        (
            ("stream.b.childrenPerShard = 2", "stream.a.childrenPerShard = 3"),
            "stream.b.childrenPerShard",
        ),
    ],
)
def test_what_a_program_keeps_for_a_shard_is_remarked_once(lines, key):
    more = ("streams = a, b",) if key.startswith("stream.") else ()
    result = built(*more, *lines, **(MANY if more else {}))
    told = [one for one in result.findings if "KCL_MLD_CHILD" in one.suggestion]
    assert [(one.severity, one.key) for one in told] == [(Severity.INFO, key)]
    assert told[0].line is not None
    assert built("childrenPerShard = 1").require()
    none = [one for one in built("childrenPerShard = 1").findings if "KCL_MLD" in one.suggestion]
    assert none == []


def test_several_children_exclude_dead_letters():
    ((key, text, has_line),) = found("childrenPerShard = 2", *LETTERS)
    assert (key, has_line) == ("childrenPerShard", True)
    assert "deadletter, which judges a child by the one position of its shard" in text
    ((key, text, has_line),) = many("stream.orders.childrenPerShard = 2", *LETTERS)
    assert (key, has_line) == ("stream.orders.childrenPerShard", True)
    assert found("childrenPerShard = 1", *LETTERS) == []
    assert many("stream.orders.childrenPerShard = 1", *LETTERS) == []


def test_several_children_are_not_told_of_the_status_field_failure():
    """It is announced only with the policy that several children exclude."""
    assert FAILURE in announced_to(config(*LETTERS).child)
    for policy in ("exit", "restart"):
        lines = ("childrenPerShard = 2", f"childFailurePolicy = {policy}")
        assert FAILURE not in announced_to(config(*lines).child)


def test_several_children_are_not_for_spark():
    ((key, text, has_line),) = found("childrenPerShard = 2", SPARK)
    assert (key, has_line) == ("childrenPerShard", True)
    assert "one host serves all shards" in text
    assert found("childrenPerShard = 1", SPARK) == []


@pytest.mark.parametrize(
    ("lines", "keys"),
    [
        (("stream.orders.childrenPerShard = 2", SPARK), ["stream.orders.childrenPerShard"]),
        (("childrenPerShard = 2", f"stream.orders.{SPARK}"), ["childrenPerShard"]),
        (
            ("childrenPerShard = 2", SPARK, "stream.orders.executableName = a.py"),
            ["childrenPerShard"],
        ),
        (
            ("stream.o*.childrenPerShard = 2", f"stream.orders.{SPARK}"),
            ["stream.o*.childrenPerShard"],
        ),
        (
            ("stream.x*.childrenPerShard = 2", f"stream.x*.{SPARK}"),
            ["stream.x*.childrenPerShard"],
        ),
        (("stream.orders.childrenPerShard = 2", f"stream.clicks.{SPARK}"), []),
        (("childrenPerShard = 2", f"stream.o*.{SPARK}", "stream.o*.childrenPerShard = 1"), []),
    ],
)
def test_the_program_of_a_stream_decides(lines, keys):
    assert [key for key, _, _ in many(*lines)] == keys


def test_confirmation_by_status_needs_several_children():
    ((key, text, has_line),) = found("childConfirms = status")
    assert (key, has_line) == ("childConfirms", True)
    assert text.startswith("status has no effect: no childrenPerShard is greater than 1")
    assert len(many("childConfirms = status", "stream.orders.childrenPerShard = 1")) == 1
    assert many("childConfirms = status", "stream.orders.childrenPerShard = 2") == []
