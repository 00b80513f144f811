"""One plan for many shards, where the function plans the same for each of them.

Spark takes some 50 ms to analyze, optimize and schedule each branch of a union, so 64 shards cost
seconds a job, however little they have. But a function plans the same thing for every shard, nearly
always: then one plan over the rows of all shards does, if it keeps the batches apart. The plans are
Connect's protocol buffers; they are compared, and the batch column is led through the common one:

* a projection gets it as one more column, a grouping and a deduplication as one more key, a window
  as one more partition;
* filters, added columns, sorts, hints and joins with other tables let it pass.

Whatever is not in this list is not merged: such plans are united instead, which is right for all.
So is what would see the batch column (``struct("*")``), what would see the rows of several batches
(a random number, the number of a row, a pandas function) and what may hide in SQL text (a window
in ``selectExpr``). A plan that loses the column, or aggregates beside it, is refused by Spark's
analyzer, and the engine falls back to the union for good.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.connect.dataframe import DataFrame as ConnectFrame
from pyspark.sql.connect.plan import LogicalPlan

from mld.spark.model import BATCH_COLUMN
from mld.spark.plans.mixing import NotMergeable, messages, own_messages, refuse_what_sees_the_batch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "NotMergeable",
    "RowsPlaceholder",
    "content_of",
    "merged",
    "plan_ids",
    "shape",
    "with_placeholder",
]

_SEAM = "_kcl_mld_seam"
#: Relations with one input that let a further column pass as they are.
_PASSING = frozenset(
    {
        *("filter", "with_columns", "with_columns_renamed", "drop", "sort", "repartition"),
        *("repartition_by_expression", "subquery_alias", "hint", "fill_na"),
    }
)
#: Joins that keep every row of a side with the batch it came from.
_LEFT_JOINS = frozenset({1, 3, 5, 6, 7})  # inner, left outer, left anti, left semi, cross
_RIGHT_JOINS = frozenset({1, 4, 7})  # inner, right outer, cross
_GROUP_BY = 1


class RowsPlaceholder(LogicalPlan):
    """Where the function's plan meets the rows of a batch: real for Spark, a mark for us.

    Args:
        build: makes the real frame; called when Spark needs it, which is never for a merged plan.
    """

    def __init__(self, build: Callable[[], DataFrame]) -> None:
        super().__init__(None)
        self._build = build
        self._real: DataFrame | None = None
        self.is_mark = False

    @property
    def plan_id(self) -> int:
        """By which the rows are known in a plan, whatever has become of it."""
        return self._plan_id

    def plan(self, session: Any) -> Any:
        """The relation of the rows, under this plan's own id, which columns refer to."""
        if self.is_mark:
            relation = self._create_proto_relation()
            relation.read.named_table.unparsed_identifier = _SEAM
            return relation
        if self._real is None:
            self._real = self._build()
        relation = _plan_of(self._real).plan(session)
        relation.common.plan_id = self._plan_id
        return relation


class _Given(LogicalPlan):
    """A relation that is there already."""

    def __init__(self, relation: Any) -> None:
        super().__init__(None)
        self._relation = relation

    def plan(self, session: Any) -> Any:
        """A copy of it."""
        del session
        relation = self._create_proto_relation()
        relation.CopyFrom(self._relation)
        return relation


def with_placeholder(spark: SparkSession, placeholder: RowsPlaceholder) -> DataFrame:
    """The frame that the function is given."""
    return ConnectFrame(placeholder, spark)  # type: ignore[arg-type]


def shape(planned: DataFrame, placeholder: RowsPlaceholder) -> Any:
    """The function's plan with a mark where the rows are, and ids counted from 0.

    Two plans are the same exactly if their shapes are equal.
    """
    placeholder.is_mark = True
    try:
        relation = _plan_of(planned).plan(_client_of(planned))
    finally:
        placeholder.is_mark = False
    _renumber(relation, first=0)
    return relation


def merged(spark: SparkSession, common: Any, rows: DataFrame) -> DataFrame:
    """The common plan over the rows of all batches, which have their batch column.

    Args:
        spark: the session.
        common: a shape; it is not changed.
        rows: decoded, with ``BATCH_COLUMN``.

    Raises:
        NotMergeable: the plan would mix batches.
    """
    if BATCH_COLUMN.encode() in common.SerializeToString().lower():
        raise NotMergeable(f"a column named {BATCH_COLUMN}")
    relation = type(common)()
    relation.CopyFrom(common)
    mark = _lead_through(relation)
    source = _plan_of(rows).plan(_client_of(rows))
    _renumber(source, first=1 + max(plan_ids(relation)))
    source.common.plan_id = mark.common.plan_id
    mark.CopyFrom(source)
    return ConnectFrame(_Given(relation), spark)  # type: ignore[arg-type]


def plan_ids(message: Any) -> set[int]:
    """Ids of all plans in a command or relation."""
    return {each.plan_id for each in messages(message) if _has_plan_id(each)}


def content_of(command: Any) -> bytes:
    """A command without what differs each time that it is said."""
    copied = type(command)()
    copied.CopyFrom(command)
    _renumber(copied, first=0)
    return bytes(copied.SerializeToString(deterministic=True))


def _renumber(relation: Any, first: int) -> None:
    """Give the plans in a relation new ids in the order in which they appear."""
    ids: dict[int, int] = {}
    for message in messages(relation):
        if _has_plan_id(message):
            message.plan_id = ids.setdefault(message.plan_id, first + len(ids))


def _lead_through(relation: Any) -> Any:
    """Lead the batch column from the mark up through this relation; returns the mark."""
    kind = relation.WhichOneof("rel_type")
    body = getattr(relation, kind)
    if kind == "read":
        if not _is_mark(relation.read.named_table):
            raise NotMergeable("rows that do not come from the batch")
        return relation
    refuse_what_sees_the_batch(body)
    if kind == "join":
        return _through_join(body)
    _partition_windows(body)
    if kind == "project":
        _through_projection(body)
    elif kind == "aggregate":
        _through_grouping(body)
    elif kind == "deduplicate":
        _through_deduplication(body)
    elif kind not in _PASSING:
        raise NotMergeable(kind)
    return _lead_through(body.input)


def _through_projection(body: Any) -> None:
    if not body.HasField("input"):
        raise NotMergeable("a projection of nothing")
    if not any(_is_all_columns(each) for each in body.expressions):
        _name_batch(body.expressions.add())


def _through_grouping(body: Any) -> None:
    if body.group_type != _GROUP_BY or not body.grouping_expressions:
        # Without keys an empty batch still gives a row, which a grouping by batch would not.
        raise NotMergeable("an aggregate without keys")
    _name_batch(body.grouping_expressions.add())


def _through_deduplication(body: Any) -> None:
    if body.within_watermark:
        raise NotMergeable("a deduplication by watermark")
    if not body.all_columns_as_keys:
        body.column_names.append(BATCH_COLUMN)


def _through_join(body: Any) -> Any:
    has_left, has_right = _has_mark(body.left), _has_mark(body.right)
    if has_left and not has_right and body.join_type in _LEFT_JOINS:
        return _lead_through(body.left)
    if has_right and not has_left and body.join_type in _RIGHT_JOINS:
        return _lead_through(body.right)
    raise NotMergeable("a join of the batch with itself, or one that keeps other rows")


def _is_all_columns(expression: Any) -> bool:
    """True for ``*`` as a column of a projection; ``a.*`` is another matter."""
    kind = expression.WhichOneof("expr_type")
    if kind == "expression_string":
        return bool(expression.expression_string.expression.strip() == "*")
    return kind == "unresolved_star" and not expression.unresolved_star.HasField("unparsed_target")


def _partition_windows(body: Any) -> None:
    """Windows of this relation's own expressions see one batch only."""
    for message in own_messages(body):
        if message.DESCRIPTOR.name == "Window" and hasattr(message, "partition_spec"):
            _name_batch(message.partition_spec.add())


def _name_batch(expression: Any) -> None:
    expression.unresolved_attribute.unparsed_identifier = BATCH_COLUMN


def _has_mark(relation: Any) -> bool:
    return any(_is_mark(message) for message in messages(relation))


def _is_mark(message: Any) -> bool:
    is_table = message.DESCRIPTOR.name == "NamedTable"
    return bool(is_table and message.unparsed_identifier == _SEAM)


def _has_plan_id(message: Any) -> bool:
    return "plan_id" in message.DESCRIPTOR.fields_by_name and message.HasField("plan_id")


def _plan_of(frame: DataFrame) -> Any:
    return frame._plan  # noqa: SLF001 - Connect has no other way


def _client_of(frame: DataFrame) -> Any:
    return frame.sparkSession.client
