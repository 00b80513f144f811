"""What may not be together with several children of a shard (``childrenPerShard``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.config.child_command import SPARK_PROGRAM, spark_command, split_command
from kcl_mld.config.config import ChildConfirms, ChildFailurePolicy
from kcl_mld.config.stream_options import CHILDREN_KEY, chosen_options
from kcl_mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kcl_mld.config.config import ChildConfig
    from kcl_mld.config.settings import Settings
    from kcl_mld.config.stream_list import StreamList


class _Several(NamedTuple):
    """A line that gives shards several children; ``line`` is None for that of all streams."""

    key: str
    line: int | None


def check_children(settings: Settings, child: ChildConfig, streams: StreamList | None) -> None:
    """Report what can't work with several children of a shard, and what means nothing without."""
    several = [_Several(CHILDREN_KEY, None)] if child.per_shard > 1 else []
    several += [
        _Several(mask(option.key), option.line)
        for option in settings.stream_options
        if option.option == CHILDREN_KEY and int(option.text) > 1
    ]
    if not several:
        if child.confirms is ChildConfirms.STATUS:
            settings.error(
                "childConfirms",
                f"status has no effect: no {CHILDREN_KEY} is greater than 1, and the only child of a"
                " shard confirms records by its checkpoints",
                f"write {CHILDREN_KEY} = 2 or more, or remove the line",
            )
        return
    settings.remark(
        several[0].key,
        "a program that has a file, a table row or a lock for each shardId must have one for each"
        " child: several processes get the records of one shard",
        "use KCL_MLD_CHILD in its name, too",
        several[0].line,
    )
    if child.failure_policy is ChildFailurePolicy.DEADLETTER:
        for key, line in several:
            settings.error(
                key,
                "several children of a shard can't be together with childFailurePolicy ="
                " deadletter, which judges a child by the one position of its shard",
                f"write childFailurePolicy = restart, or {key} = 1",
                line,
            )
    for key, line in dict.fromkeys(_of_spark(child, streams)):
        settings.error(
            key,
            f"several children of a shard are not for {SPARK_PROGRAM}: one host serves all shards of"
            " the worker",
            f"write {key} = 1",
            line,
        )


def _of_spark(child: ChildConfig, streams: StreamList | None) -> Iterator[_Several]:
    """The lines that give a PySpark child siblings."""
    if child.per_shard > 1 and _is_spark(child.argv):
        yield _Several(CHILDREN_KEY, None)
    if streams is None:
        return
    # A pattern stands for the streams that only it matches.
    names = [one.name for one in streams.streams] + [one.pattern for one in streams.options]
    for name in names:
        chosen = chosen_options(name, streams.options)
        program, children = chosen.get("argv"), chosen.get("children")
        count = child.per_shard if children is None else int(children.text)
        argv = child.argv if program is None else split_command(program.text)
        if count > 1 and _is_spark(argv):
            yield (
                _Several(CHILDREN_KEY, None)
                if children is None
                else _Several(mask(children.key), children.line)
            )


def _is_spark(argv: Sequence[str]) -> bool:
    return spark_command(argv) is not None
