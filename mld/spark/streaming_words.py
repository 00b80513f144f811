"""Words of Structured Streaming that mean nothing to a batch, found in an app before it runs. Pure.

Spark itself ignores ``withWatermark`` of a batch in silence, and refuses the others only once records
are there. The code is looked at and no frame: an attribute of that name is all that is known, which
is enough for a hint.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_LATE = "rows that come late are in a later batch"
_WRITES = "return the rows, and spark.sink writes them"
_STATE = "nothing is kept from batch to batch: keep it in the table, with spark.sink = merge, say"
#: Name of an attribute -> why it means nothing, and what to do.
MEANINGLESS = {
    "withWatermark": f"is ignored by Spark: a batch has no watermark, {_LATE}",
    "dropDuplicatesWithinWatermark": f"fails: use dropDuplicates, within the batch; {_STATE}",
    "writeStream": f"fails: what the function is given is no stream; {_WRITES}",
    "readStream": "gives a stream, which can't be joined with a batch or written as one: use read",
    "foreachBatch": f"is what this function is already; {_WRITES}",
    "isStreaming": "is always False: what the function is given is a batch",
    "applyInPandasWithState": f"fails: {_STATE}",
    "transformWithState": f"fails: {_STATE}",
    "transformWithStateInPandas": f"fails: {_STATE}",
    "awaitTermination": "waits for a stream, and there is none: remove it",
}


class Word(NamedTuple):
    """A word that an app uses.

    Attributes:
        name: of the attribute.
        line: where it stands first; 0 = not known.
    """

    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} (line {self.line}) {MEANINGLESS[self.name]}"


def streaming_words(code: CodeType) -> list[Word]:
    """The words in a compiled program, functions and classes included, each once, in order.

    Args:
        code: of ``compile``.
    """
    found: dict[str, int] = {}
    for name, line in _attributes(code):
        if name in MEANINGLESS:
            found.setdefault(name, line)
    return sorted((Word(name, line) for name, line in found.items()), key=lambda word: word.line)


def _attributes(code: CodeType) -> Iterator[tuple[str, int]]:
    for step in dis.get_instructions(code):
        line = (step.positions.lineno if step.positions else None) or code.co_firstlineno
        if step.opname in {"LOAD_ATTR", "LOAD_METHOD"} and isinstance(step.argval, str):
            yield step.argval, line
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _attributes(constant)
