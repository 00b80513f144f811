"""What ``spark.*`` names on this machine, and what is wrong with it before anything is started.

Pure: who asks says how a path is looked at. The daemon, ``validate`` and the Spark host ask the same.
Object stores are not looked at, nor a directory that only a server behind ``spark.remote`` writes.
"""

from __future__ import annotations

import contextlib
import json
import posixpath
import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from mld.model.s3_place import is_s3, s3_place
from mld.model.spark_keys import BY_NAME, DELTA_SINKS, OF_DELTA, OUTPUTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_SINK_PATH, _SINK_TABLE = "spark.sink.path", "spark.sink.table"
_DEADLETTER = "spark.deadletter.path"
_LETTERS = "spark.function.deadletter.path"
_SCHEMA = "spark.decoder.schema"
_NAME_OF_FILE = re.compile(r"\S+\.(avsc|json|ddl|sql|txt)")


class Look(NamedTuple):
    """How a path is looked at; none of them raises an error of the system.

    Attributes:
        exists: there is something, a link that leads nowhere included.
        is_directory: it is one.
        may_write: this user may make files in it.
        real: an absolute path without links, dots and doubled slashes.
    """

    exists: Callable[[str], bool]
    is_directory: Callable[[str], bool]
    may_write: Callable[[str], bool]
    real: Callable[[str], str] = posixpath.normpath


class PlaceFault(NamedTuple):
    """What is wrong with a property.

    Attributes:
        key: its name.
        text: what is wrong, without the key.
        advice: what to do.
    """

    key: str
    text: str
    advice: str


def place_faults(texts: Mapping[str, str | None], folder: str, look: Look) -> list[PlaceFault]:
    """Everything that is wrong with the paths and the schema of a file.

    Args:
        texts: ``spark.*`` keys with their values; absent ones have their default.
        folder: working directory of the children.
        look: at this machine.
    """
    given = {name: key.default for name, key in BY_NAME.items()} | dict(texts)
    text = {name: (value or "").strip() for name, value in given.items()}
    faults = [*_missing(text), *_shared(text, folder, look), *_misplaced(text), *_schema(text)]
    for key in _directories(text):
        fault = _directory_fault(key, text[key], folder, look)
        faults += [fault] if fault else []
    return faults


def _missing(text: Mapping[str, str]) -> Iterator[PlaceFault]:
    sink = text["spark.sink"]
    if sink in DELTA_SINKS and not text[_SINK_PATH]:
        yield PlaceFault(
            _SINK_PATH, f"is missing: the {sink} sink writes there", "name a directory"
        )
    if text["spark.decoder.onError"] == "deadletter" and not text[_DEADLETTER]:
        yield PlaceFault(_DEADLETTER, "is missing: bad records go there", "name a directory")
    if text["spark.function.onError"] == "deadletter" and not text[_LETTERS]:
        why = "is missing: records go there of which the function fails"
        yield PlaceFault(_LETTERS, why, "name a directory")


def _shared(text: Mapping[str, str], folder: str, look: Look) -> Iterator[PlaceFault]:
    """Places of which one lies in another, however they are spelled.

    The marks of dead letters have the names of those of the rows: in one table a letter would make
    the records before it count as written. And whoever looks after a table removes the files below
    it that its log does not name.
    """
    sinks = [text[_SINK_PATH]] if text["spark.sink"] in DELTA_SINKS else []
    if text["spark.sink"] == "delta":
        names = [word.strip() for word in text[OUTPUTS].split(",") if word.strip()]
        sinks = [f"{each}/{name}" for each in sinks if each for name in names] or sinks
    others = [(_SINK_PATH, each) for each in sinks]
    for key in (_LETTERS, _DEADLETTER):
        mine = _whole(text[key], folder, look)
        for other, its in others:
            there = _whole(its, folder, look)
            if mine and there and (mine in (there, *there.parents) or there in mine.parents):
                why = f"{text[key]} is, holds or lies in the directory {its} of {other}"
                yield PlaceFault(key, why, "name one of its own, beside it")
        others.append((key, text[key]))


def _whole(text: str, folder: str, look: Look) -> PurePosixPath | None:
    """A place, to compare it with others; None if there is none, or nothing is known of it."""
    if is_s3(text):
        with contextlib.suppress(ValueError):
            place = s3_place(text)
            return PurePosixPath("//s3", place.bucket, place.prefix)
    path = local_path(text)
    return PurePosixPath(look.real(posixpath.join(folder, path))) if text and path else None


def _misplaced(text: Mapping[str, str]) -> Iterator[PlaceFault]:
    """What the chosen sink does not have, or cannot reach."""
    sink = text["spark.sink"]
    if sink in DELTA_SINKS and text[_SINK_TABLE]:
        why = f"is for jdbc: {sink} writes its table without a catalog"
        yield PlaceFault(_SINK_TABLE, why, f"take the line out; {_SINK_PATH} names the table")
    for key in OF_DELTA:
        if sink not in DELTA_SINKS and text[key] not in ("", BY_NAME[key].default):
            why = f"is for spark.sink=delta and merge; {sink} has no such thing"
            yield PlaceFault(key, why, "take the line out, or write a Delta table")
    if sink != "delta" and text[OUTPUTS]:
        why = f"is for spark.sink=delta; {sink} has one output"
        yield PlaceFault(OUTPUTS, why, "take the line out, or write Delta tables")
    for key in (_SINK_PATH, _LETTERS):
        is_ours = sink in DELTA_SINKS or key == _LETTERS
        if is_ours and is_s3(text[key]):
            yield from _s3(key, text[key])
        elif is_ours and text[key] and local_path(text[key]) is None:
            why = f"{text[key]} is neither a directory nor in S3"
            advice = "name s3://bucket/prefix, or a directory that Spark's executors share with us"
            yield PlaceFault(key, why, advice)


def _s3(key: str, text: str) -> Iterator[PlaceFault]:
    try:
        s3_place(text)
    except ValueError as error:
        yield PlaceFault(key, f"{text}: {error}", "write it like s3://bucket/prefix")


def _schema(text: Mapping[str, str]) -> Iterator[PlaceFault]:
    schema = text[_SCHEMA]
    if _NAME_OF_FILE.fullmatch(schema):
        yield PlaceFault(
            _SCHEMA,
            f"{schema} is the name of a file, and the schema itself is expected",
            "write the schema here, or read the file in the app: run(..., schema=...)",
        )
    elif schema and text["spark.decoder"] == "avro":
        try:
            json.loads(schema)
        except ValueError as error:
            why = f"is no Avro schema, which is JSON: {error}"
            yield PlaceFault(_SCHEMA, why, "write the schema as JSON on one line")


def _directories(text: Mapping[str, str]) -> Iterator[str]:
    """The keys whose directory is written from this machine."""
    is_far = bool(text["spark.remote"])
    sink = text["spark.sink"]
    if text[_SINK_PATH] and sink in DELTA_SINKS:
        yield _SINK_PATH
    if text[_DEADLETTER] and not is_far:
        yield _DEADLETTER
    if text[_LETTERS]:
        yield _LETTERS


def local_path(text: str) -> str | None:
    """The path that a text names on this machine; None for a URL of another store.

    Args:
        text: a path, or a URL such as ``file:/data`` or ``s3a://bucket/data``.
    """
    scheme, colon, rest = text.partition(":")
    if not colon or "/" in scheme:
        return text
    if scheme == "file":
        return "/" + rest.lstrip("/")
    return None if rest.startswith("/") else text


def _directory_fault(key: str, text: str, folder: str, look: Look) -> PlaceFault | None:
    path = local_path(text)
    if path is None:
        return None
    whole = PurePosixPath(folder, path)
    nearest = next((each for each in (whole, *whole.parents) if look.exists(str(each))), None)
    if nearest is None:
        return None  # nothing can be said of a machine without a root
    shown = text if str(whole) == text else f"{text} ({whole})"
    if not look.is_directory(str(nearest)):
        what = "is not a directory" if nearest == whole else f"lies below {nearest}, a file"
        return PlaceFault(key, f"{shown} {what}", "name a directory that can be made or written")
    if not look.may_write(str(nearest)):
        what = "can't be written" if nearest == whole else f"can't be made: {nearest} is not ours"
        advice = f"let this user write {nearest}, or name another directory"
        return PlaceFault(key, f"{shown} {what}", advice)
    return None
