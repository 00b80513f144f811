"""Only known relations and expressions get into a merged plan; no server is needed to see that."""

from __future__ import annotations

import pytest
from pyspark.sql.connect.proto import expressions_pb2, relations_pb2

from mld.spark.model import BATCH_COLUMN
from mld.spark.plans.merging import _SEAM, _lead_through
from mld.spark.plans.mixing import NotMergeable

Relation = relations_pb2.Relation
Expression = expressions_pb2.Expression
RELATIONS = [field.name for field in Relation.DESCRIPTOR.oneofs_by_name["rel_type"].fields]
EXPRESSIONS = [field.name for field in Expression.DESCRIPTOR.oneofs_by_name["expr_type"].fields]
#: One batch's rows give the same as part of many.
PASSING = {
    *("filter", "with_columns", "with_columns_renamed", "drop", "sort", "repartition"),
    *("repartition_by_expression", "subquery_alias", "hint", "fill_na", "project"),
    *("read", "deduplicate", "aggregate", "join"),
}
KNOWN = {
    *("literal", "unresolved_attribute", "unresolved_function", "expression_string"),
    *("unresolved_star", "alias", "cast", "sort_order", "lambda_function", "window"),
    *("unresolved_extract_value", "update_fields", "unresolved_named_lambda_variable"),
    *("common_inline_user_defined_function", "named_argument_expression"),
}


def mark(relation):
    relation.read.named_table.unparsed_identifier = _SEAM


def over_the_mark(kind):
    relation = Relation()
    body = getattr(relation, kind)
    body.SetInParent()
    for name in ("input", "left"):
        field = body.DESCRIPTOR.fields_by_name.get(name)
        if field is not None and field.message_type is Relation.DESCRIPTOR:
            mark(getattr(body, name))
    return relation


def filtered(expression):
    relation = over_the_mark("filter")
    relation.filter.condition.CopyFrom(expression)
    return relation


def called(name, *, star=False, distinct=False):
    expression = Expression()
    expression.unresolved_function.function_name = name
    expression.unresolved_function.is_distinct = distinct
    argument = expression.unresolved_function.arguments.add()
    if star:
        argument.unresolved_star.SetInParent()
    else:
        argument.literal.integer = 1
    return expression


def text(sql):
    return Expression(expression_string=Expression.ExpressionString(expression=sql))


@pytest.mark.parametrize("kind", sorted(set(RELATIONS) - PASSING))
def test_a_relation_that_is_not_known_to_keep_batches_apart_is_refused(kind):
    with pytest.raises(NotMergeable):
        _lead_through(over_the_mark(kind))


@pytest.mark.parametrize("kind", sorted(set(EXPRESSIONS) - KNOWN))
def test_an_expression_that_is_not_known_is_refused(kind):
    expression = Expression()
    getattr(expression, kind).SetInParent()
    with pytest.raises(NotMergeable):
        _lead_through(filtered(expression))


@pytest.mark.parametrize("group_type", range(2, 6))
def test_groups_over_several_levels_are_refused(group_type):
    """Rollup, cube, pivot, grouping sets: their totals go over the batches."""
    relation = over_the_mark("aggregate")
    relation.aggregate.group_type = group_type
    relation.aggregate.grouping_expressions.add().unresolved_attribute.unparsed_identifier = "id"
    with pytest.raises(NotMergeable):
        _lead_through(relation)


def test_a_grouping_gets_the_batch_as_one_more_key():
    relation = over_the_mark("aggregate")
    relation.aggregate.group_type = 1
    relation.aggregate.grouping_expressions.add().unresolved_attribute.unparsed_identifier = "id"
    assert _lead_through(relation).read.named_table.unparsed_identifier == _SEAM
    key = relation.aggregate.grouping_expressions[-1]
    assert key.unresolved_attribute.unparsed_identifier == BATCH_COLUMN


@pytest.mark.parametrize("join_type", range(1, 8))
def test_a_join_keeps_the_rows_of_the_side_that_has_the_batch(join_type):
    relation = over_the_mark("join")
    relation.join.join_type = join_type
    relation.join.right.range.end = 3
    if join_type in {1, 3, 5, 6, 7}:
        assert _lead_through(relation) is not None
    else:
        with pytest.raises(NotMergeable):
            _lead_through(relation)


@pytest.mark.parametrize(
    "expression",
    [
        *(called("rand"), called("system.builtin.RAND"), called("monotonically_increasing_id")),
        *(called("struct", star=True), called("count", star=True, distinct=True)),
        *(text("row_number() over (order by x)"), text("sum(x) OVER w"), text("uuid ()")),
        *(text("struct(*)"), text("struct(a.*)"), text("struct(ALL *)"), text("* except (x)")),
        *(text("struct(-- all\n*)"), text("struct(/**/ *)"), text("count(distinct *)")),
    ],
    ids=str,
)
def test_an_expression_that_may_see_other_batches_is_refused(expression):
    with pytest.raises(NotMergeable):
        _lead_through(filtered(expression))
    relation = over_the_mark("join")
    relation.join.join_type = 1
    relation.join.right.range.end = 3
    relation.join.join_condition.CopyFrom(expression)
    with pytest.raises(NotMergeable):
        _lead_through(relation)


@pytest.mark.parametrize(
    "expression",
    [
        *(called("upper"), called("count", star=True), text("*"), text("a * 2 + (b) * c")),
        *(text("count(*) > 1"), text("moreover + rand + uuid"), text("a - 1")),
    ],
    ids=str,
)
def test_an_expression_of_one_row_is_let_pass(expression):
    assert _lead_through(filtered(expression)) is not None


@pytest.mark.parametrize(
    ("eval_type", "passes"), [(100, True), (101, True), (200, False), (204, False)]
)
def test_python_functions_of_single_rows_are_let_pass(eval_type, passes):
    expression = Expression()
    expression.common_inline_user_defined_function.deterministic = True
    expression.common_inline_user_defined_function.python_udf.eval_type = eval_type
    if passes:
        assert _lead_through(filtered(expression)) is not None
    else:
        with pytest.raises(NotMergeable):
            _lead_through(filtered(expression))
