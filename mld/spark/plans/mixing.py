"""What in a plan would see the batch column, or the rows of several batches.

A merged plan runs over the rows of all batches of a job. What is in doubt is refused: a kind of
expression that a newer pyspark adds, SQL text that may hide a window or a star, a function whose
value depends on what else is in its partition. Refused plans are united instead, which is right for
all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_INPUTS = frozenset({"input", "left", "right"})
#: Expressions that a merged plan may have; functions and SQL text are looked at more closely.
_KNOWN = frozenset(
    {
        *("literal", "unresolved_attribute", "unresolved_function", "expression_string"),
        *("unresolved_star", "alias", "cast", "sort_order", "lambda_function", "window"),
        *("unresolved_extract_value", "update_fields", "unresolved_named_lambda_variable"),
        *("common_inline_user_defined_function", "named_argument_expression"),
    }
)
#: Functions whose values depend on what else is in the partition.
_UNSTEADY = frozenset(
    {
        *("rand", "randn", "random", "randstr", "uniform", "uuid", "shuffle"),
        *("monotonically_increasing_id", "spark_partition_id"),
        *("input_file_name", "input_file_block_start", "input_file_block_length"),
    }
)
#: Python functions that are given one row, or the rows of one group (``PythonEvalType``); those
#: that are given a stretch of a column would see the rows of several batches.
_ROW_BY_ROW = frozenset({100, 101, 202, 252})
#: SQL text that is not merged: a window, a comment, or a star that is an argument and no product.
_MIXING_TEXT = re.compile(
    r"\bover\b|--|(?:^|[(,./]|\b(?:all|distinct))\s*\*|\b(?:" + "|".join(_UNSTEADY) + r")\s*\(",
    re.IGNORECASE,
)
_COUNT_OF_ROWS = re.compile(r"\bcount\s*\(\s*\*\s*\)", re.IGNORECASE)


class NotMergeable(Exception):
    """The plan does something that would mix batches, or that is not known here."""


def refuse_what_sees_the_batch(body: Any) -> None:
    """Nothing of the function may take the batch column in, or see rows of several batches."""
    for message in own_messages(body):
        kind = message.DESCRIPTOR.name
        if kind == "Expression":
            _refuse_unknown(message)
        elif kind == "ExpressionString":
            text = _COUNT_OF_ROWS.sub("count(1)", message.expression).strip()
            if text != "*" and _MIXING_TEXT.search(text):
                raise NotMergeable(f"SQL text that may see other batches: {text}")
        elif kind == "PythonUDF" and message.eval_type not in _ROW_BY_ROW:
            raise NotMergeable("a Python function that is given many rows at once")
        elif hasattr(message, "arguments") and kind != "NamedArgumentExpression":
            _refuse_function(message)


def _refuse_unknown(expression: Any) -> None:
    kind = expression.WhichOneof("expr_type")
    is_of_a_frame = kind == "unresolved_star" and expression.unresolved_star.HasField("plan_id")
    is_hidden = kind == "unresolved_attribute" and (
        expression.unresolved_attribute.is_metadata_column
    )
    if kind not in _KNOWN or is_of_a_frame or is_hidden:
        raise NotMergeable(f"an expression: {kind}")


def _refuse_function(message: Any) -> None:
    name = getattr(message, "function_name", "").lower().rpartition(".")[2]
    by_name = getattr(message, "is_user_defined_function", False)
    if name in _UNSTEADY or by_name or not getattr(message, "deterministic", True):
        raise NotMergeable(f"a function that may see other batches: {name}")
    if any(_has_star(each) for each in message.arguments) and (
        name != "count" or message.is_distinct
    ):
        raise NotMergeable("a function of all columns")


def _has_star(expression: Any) -> bool:
    """True if it is a star, or an alias or a cast of one."""
    return any(each.DESCRIPTOR.name == "UnresolvedStar" for each in messages(expression))


def own_messages(body: Any) -> Iterator[Any]:
    """The messages of a relation without those of its inputs."""
    for descriptor, value in body.ListFields():
        if descriptor.message_type is not None and descriptor.name not in _INPUTS:
            for each in _each(value):
                yield from messages(each)


def messages(message: Any) -> Iterator[Any]:
    """A message and all messages in it, outer ones first."""
    yield message
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for each in _each(value):
                yield from messages(each)


def _each(value: Any) -> list[Any]:
    """The messages of a field: one, several, or the values of a map."""
    if hasattr(value, "DESCRIPTOR"):
        return [value]
    found = value.values() if hasattr(value, "values") else value
    return [each for each in found if hasattr(each, "DESCRIPTOR")]
