"""What one micro-batch adds to several tables, written down before the first of them. Pure.

A manifest names the shards with the positions they reach, and for each table the files, and the
guards behind which they are added. Its *first* step has no files: the table of positions. That
commit decides. While the guards there are as they were, nothing has happened, and a worker that moves one
of the shards by another batch makes this one void for ever, because no guard comes back. Once the
guard of one of its shards there is the manifest's own identity, its files belong to all tables, and
the next owner of one of its shards adds them where they are missing, before it begins.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from kcl_mld.spark.model import Position, ShardKey
from kcl_mld.spark.table.data_files import DataFile
from kcl_mld.spark.table.marks import Judgement

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Step:
    """One commit of a manifest.

    Attributes:
        table: name of the table.
        before: for each shard the guard behind which the files are added; None = it had none.
        files: that are added; none = only the marks move.
    """

    table: str
    before: Mapping[ShardKey, int | None]
    files: Sequence[DataFile]


@dataclass(frozen=True, slots=True)
class Manifest:
    """A micro-batch in several tables.

    Attributes:
        identity: the guard that each of its commits gives to its shards, 0 <= identity < 2**62.
        ends: for each shard the position that it reaches.
        steps: in the order in which they are made; the first one decides.
    """

    identity: int
    ends: Mapping[ShardKey, Position]
    steps: Sequence[Step]

    def encode(self) -> str:
        """As JSON."""
        shards = list(self.ends)
        return json.dumps(
            {
                "format": _FORMAT,
                "identity": self.identity,
                "shards": [dataclasses.astuple(shard) for shard in shards],
                "ends": [str(self.ends[shard]) for shard in shards],
                "steps": [
                    {
                        "table": step.table,
                        "before": [step.before[shard] for shard in shards],
                        "files": [dataclasses.asdict(file) for file in step.files],
                    }
                    for step in self.steps
                ],
            }
        )

    @classmethod
    def decode(cls, text: str) -> Manifest:
        """The inverse of :meth:`encode`.

        Raises:
            ValueError: it is no manifest, or one of another release.
        """
        try:
            found: dict[str, Any] = json.loads(text)
            if found["format"] != _FORMAT:
                raise ValueError(f"format {found['format']!r}, not {_FORMAT}")
            shards = [ShardKey(*each) for each in found["shards"]]
            ends = [Position.parse(each) for each in found["ends"]]
            steps = [
                Step(
                    step["table"],
                    dict(zip(shards, step["before"], strict=True)),
                    [DataFile(**file) for file in step["files"]],
                )
                for step in found["steps"]
            ]
            return cls(int(found["identity"]), dict(zip(shards, ends, strict=True)), steps)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it lacks something: {error!r}") from error


class Move(StrEnum):
    """What to do with a step of a manifest."""

    COMMIT = "commit"
    """Its files are not in the table: add them, behind its guards, on the very snapshot."""
    GO_ON = "go on"
    """The table has them."""
    VOID = "void"
    """Another batch was first: nothing of this manifest is in any table, or ever will be."""


def next_move(verdict: Judgement, *, decides: bool) -> Move:
    """What to do with a step, as the guards of its table judge it.

    A table that follows may have been moved on by others, so that no guard tells of this manifest
    any more. Who did so had this manifest's shard from its owner, and had added the files before.

    Args:
        verdict: of the step's guards in a snapshot of its table.
        decides: True for the first step. The others are asked only once that one stands.
    """
    if verdict is Judgement.REPEAT:
        return Move.COMMIT
    return Move.VOID if decides and verdict is Judgement.LOST else Move.GO_ON
