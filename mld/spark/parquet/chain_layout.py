"""The layout of the parquet chain: its names, and the marker that a link bears. Pure: no I/O.

::

    <path>/_kcl_chain.json                        whose output this is
    <path>/_staging/<owner>/<job>/                what is being written
    <path>/epoch=<E>/stream=<S>/shard=<X>/
        after=<position or start>/                one committed batch: a link
            part-*.parquet                        its rows; none if the function kept none
            _kcl.json                             its marker: where it ends
        _segments/<from>~<to>/                    a run of links, merged
        _hint.json                                a link near the end, to shorten the walk

A link is named by the position that it follows, not by its range: a redelivery is cut anew, and
two writers that extend the same position must collide. A segment covers whole links (and whole
older segments), so that the walk of :mod:`mld.spark.parquet.chain` may take it in their place.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from mld.spark.errors import SinkRefused
from mld.spark.model import Position, parse_position, position_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mld.spark.model import ShardKey

FORMAT = 1
MARKER = "_kcl.json"
OWNER = "_kcl_chain.json"
STAGING = "_staging"
SEGMENTS = "_segments"
HINT = "_hint.json"
#: Longest name of a directory on the usual file systems, in bytes.
NAME_LIMIT = 255
_LINK, _EPOCH, _STREAM, _SHARD = "after=", "epoch=", "stream=", "shard="


@dataclass(frozen=True, slots=True)
class Marker:
    """What a link says about itself.

    Attributes:
        to: position of its last record.
        count: records of the batch, >= 0; a function may have made any number of rows of them.
        files: parquet files that it was committed with; 0 = it has no rows.
        rows: rows in the files of a segment; 0 in a link, where nobody counts them.
        writer: who committed it: the same for one process, and no other.
        published_s: wall time of a segment's publication in s since 1970; 0 in a link.
    """

    to: Position
    count: int
    files: int = 0
    rows: int = 0
    writer: str = ""
    published_s: float = 0.0

    def encode(self) -> str:
        """The text of ``_kcl.json``."""
        return json.dumps(
            {
                "format": FORMAT,
                "to": str(self.to),
                "count": self.count,
                "files": self.files,
                "rows": self.rows,
                "writer": self.writer,
                "published": self.published_s,
            }
        )

    @classmethod
    def decode(cls, text: str) -> Marker:
        """The inverse of :meth:`encode`; members that it does not know are skipped.

        Raises:
            ValueError: it is no marker, or one of a newer format.
        """
        found: Any = json.loads(text)
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f"not a marker of format {FORMAT}: {text[:80]!r}")
        return cls(
            to=Position.parse(str(found.get("to"))),
            count=int(found.get("count", 0)),
            files=int(found.get("files", 0)),
            rows=int(found.get("rows", 0)),
            writer=str(found.get("writer", "")),
            published_s=float(found.get("published") or 0.0),
        )


def escape(text: str) -> str:
    """A stream's or an epoch's name as part of a directory's name: percent-encoded UTF-8.

    Raises:
        SinkRefused: it would be too long.
    """
    escaped = quote(text, safe="").replace("~", "%7E")
    if len(escaped) > NAME_LIMIT - len(_STREAM):
        raise SinkRefused(f"the name {text!r} is too long for a directory: shorten it")
    return escaped


def shard_path(shard: ShardKey) -> str:
    """Directory of a shard, relative to the chain's."""
    return f"{stream_path(shard.epoch, shard.stream)}/{_SHARD}{escape(shard.shard_id)}"


def epoch_path(epoch: str) -> str:
    """Directory of an epoch, relative to the chain's."""
    return f"{_EPOCH}{escape(epoch)}"


def stream_path(epoch: str, stream: str) -> str:
    """Directory of a stream, relative to the chain's."""
    return f"{epoch_path(epoch)}/{_STREAM}{escape(stream)}"


def stream_of(name: str) -> str | None:
    """The stream that a directory is named after; None if it is none of these."""
    return unquote(name.removeprefix(_STREAM)) if name.startswith(_STREAM) else None


def shard_of(name: str) -> str | None:
    """The shard that a directory is named after; None if it is none of these."""
    return unquote(name.removeprefix(_SHARD)) if name.startswith(_SHARD) else None


def link_name(after: Position | None) -> str:
    """Directory of the batch that follows a position, relative to the shard's."""
    return f"{_LINK}{position_text(after)}"


def link_of(name: str) -> tuple[Position | None] | None:
    """The position that a link's name holds, in a tuple; None if it is no link's name."""
    if not name.startswith(_LINK):
        return None
    try:
        return (parse_position(name.removeprefix(_LINK)),)
    except ValueError:
        return None


def segment_name(after: Position | None, to: Position) -> str:
    """Directory of a merged run, relative to the shard's."""
    return f"{SEGMENTS}/{position_text(after)}~{to}"


def parse_segments(names: Iterable[str]) -> Iterator[tuple[Position | None, Position]]:
    """Where segments begin and end; names that are none are skipped."""
    for name in names:
        begin, _, end = name.partition("~")
        try:
            after, to = parse_position(begin), Position.parse(end)
        except ValueError:
            continue
        if is_after(to, after):
            yield after, to


def is_after(to: Position, after: Position | None) -> bool:
    """True if ``to`` lies behind ``after``; everything lies behind the beginning."""
    return after is None or to > after
