"""Which lines of a child's stdout are messages: Jackson's verdicts, repeated in Python.

A line is a message only if the Java daemon would take it as one; everything else is :class:`Junk`
with the reason. Known actions in exact case, only known fields, coercions of scalars, the
array-wrapped form, anything behind the first JSON value ignored. Two decisions: a bare ``null`` is
skipped (Java dies of it), and a message behind other text or behind another message is skipped as in
Java, but reported, because child and daemon then wait for each other. The additions of kcl-mld are
messages only where they were announced to the child.

Source: KCL 3.5.1 ``GetNextMessageTask`` and ``multilang.messages`` under Jackson's defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from kcl_mld_protocol.additions import FAILURE
from kcl_mld_protocol.messages import Action, CheckpointRequest, Status, Tick

_LONG_MIN: Final = -(2**63)
_LONG_MAX: Final = 2**63 - 1
_JSON_SPACE: Final = " \t\r\n"
#: What ``String.trim`` of Java strips: every character up to U+0020.
_JAVA_SPACE: Final = "".join(map(chr, range(0x21)))


@dataclass(frozen=True, slots=True)
class Junk:
    """A line that is not a message.

    Attributes:
        line: the bytes as received.
        reason: the reason, for a log.
        action: of the child's message that the line was probably intended to be; None for other output.
            Its sender or receiver goes on waiting.
        is_glued: that message stands behind other output, or behind another message.
        status: the action that a status at the end of such a line names.
    """

    line: bytes
    reason: str
    action: str | None = None
    is_glued: bool = False
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Foreign:
    """A well-formed message that no child has a reason to send; Java ignores it silently."""

    action: Action


#: Reasons for a message that follows other output, or another message, on its line.
_GLUED: Final = "a message behind other output: end that output with a newline"
_SECOND: Final = "a second message on one line: end each message with a newline"


class _Literal(str):
    """The text of a JSON number as it stood in the line."""

    __slots__ = ()


class _Object(list[tuple[str, Any]]):
    """The fields of a JSON object in order, duplicates included."""

    __slots__ = ()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_Object,
    parse_int=_Literal,
    parse_float=_Literal,
    parse_constant=_refuse_constant,
)


class _Refused(Exception):
    """A field has a value that Jackson would not coerce."""


def _as_string(value: object) -> str | None:
    """Jackson's coercion to String: numbers by their literal, booleans by name."""
    if value is None or type(value) is str:
        return value
    if isinstance(value, _Literal):
        return _checked(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    raise _Refused("is not a scalar")


def _checked(literal: str) -> str:
    """Refuse whole numbers beyond Jackson's limit of digits."""
    if len(literal.lstrip("-")) > _MAX_INTEGER_DIGITS and not _FRACTION.search(literal):
        raise _Refused("has too many digits")
    return str.__str__(literal)


_FRACTION: Final = re.compile("[.eE]")
#: ``StreamReadConstraints.getMaxNumberLength`` of Jackson 2.15 and later.
_MAX_INTEGER_DIGITS: Final = 1000
_BASE64_TEXT: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4}|[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[\x00-\x20])*"
)


def _as_bytes(value: object) -> None:
    """Jackson's coercion to byte[]: base64 text or an array of numbers."""
    if value is None or (type(value) is list and all(isinstance(i, _Literal) for i in value)):
        return
    if type(value) is not str or not _BASE64_TEXT.fullmatch(value):
        raise _Refused("is not base64")


_INTEGER_TEXT: Final = re.compile(r"[+-]?\d+")
_LONG_DIGITS: Final = 30


def _as_long(value: object) -> int | None:
    """Jackson's coercion to Long: strings parsed, fractions truncated, 64 bits."""
    if value is None:
        return None
    if isinstance(value, _Literal):
        return _long_of_literal(value)
    if not isinstance(value, str):
        raise _Refused("is not a number")
    text = value.strip(_JAVA_SPACE)
    if text in {"", "null"}:
        return None
    if not _INTEGER_TEXT.fullmatch(text):
        raise _Refused("is not a whole number")
    return _long_of_digits(text)


def _long_of_digits(text: str) -> int:
    digits = text.lstrip("+-0") if len(text) > _LONG_DIGITS else text
    number = int(text) if len(digits) <= _LONG_DIGITS else _LONG_MAX + 1
    if not _LONG_MIN <= number <= _LONG_MAX:
        raise _Refused("exceeds 64 bits")
    return number


def _long_of_literal(literal: str) -> int:
    if not _FRACTION.search(literal):
        return _long_of_digits(literal)
    number = float(literal)
    if not _LONG_MIN <= number <= float(_LONG_MAX):
        raise _Refused("exceeds 64 bits")
    return min(int(number), _LONG_MAX)  # a Java cast saturates


def _as_seconds(value: object) -> float | None:
    """A number; whatever else it is counts as none, and the daemon complains."""
    return float(value) if isinstance(value, _Literal) else None


def _as_records(value: object) -> None:
    """Accept what Jackson would take as the records of a (pointless) processRecords."""
    if value is None:
        return
    if not isinstance(value, list) or isinstance(value, _Object):
        raise _Refused("is not an array")
    for item in value:
        if item is not None:
            if not isinstance(item, _Object):
                raise _Refused("holds something that is not a record")
            _take(item, _RECORD_FIELDS)


_Coercion: TypeAlias = Callable[[object], Any]

_RECORD_FIELDS: Final[dict[str, _Coercion]] = {
    "data": _as_bytes,
    "partitionKey": _as_string,
    "sequenceNumber": _as_string,
    "approximateArrivalTimestamp": _as_long,
    "subSequenceNumber": _as_long,
}
_FIELDS: Final[dict[str, dict[str, _Coercion]]] = {
    Action.STATUS: {"responseFor": _as_string},
    Action.CHECKPOINT: {
        "sequenceNumber": _as_string,
        "subSequenceNumber": _as_long,
        "error": _as_string,
    },
    Action.INITIALIZE: {
        "shardId": _as_string,
        "sequenceNumber": _as_string,
        "subSequenceNumber": _as_long,
    },
    Action.PROCESS_RECORDS: {"records": _as_records, "millisBehindLatest": _as_long},
    Action.SHUTDOWN: {"reason": _as_string},
    Action.LEASE_LOST: {},
    Action.SHARD_ENDED: {},
    Action.SHUTDOWN_REQUESTED: {},
}

_FAILURE_FIELDS: Final[dict[str, _Coercion]] = {
    "responseFor": _as_string,
    "failure": _as_string,
    "failedSequenceNumber": _as_string,
    "failedSubSequenceNumber": _as_long,
}
_TICK_FIELDS: Final[dict[str, _Coercion]] = {"seconds": _as_seconds}


def _take(pairs: Sequence[tuple[str, object]], known: dict[str, _Coercion]) -> dict[str, Any]:
    """Coerce every field in order; the last of duplicates wins, an unknown one refuses all."""
    values: dict[str, Any] = {}
    for name, value in pairs:
        coerce = known.get(name)
        if coerce is None:
            raise _Refused(f"unknown field {name!r}")
        try:
            values[name] = coerce(value)
        except _Refused as refused:
            raise _Refused(f"field {name!r} {refused}") from None
    return values


def _split_action(value: object) -> tuple[object, Sequence[tuple[str, object]]]:
    """The type name and the other fields, from the plain or the array-wrapped form."""
    if isinstance(value, _Object):
        for index, (name, action) in enumerate(value):
            if name == "action":
                # A second action stays among the fields, where it is an unknown one. Jackson
                # buffers what stood before the action and forgets the sign of a zero by that.
                before = [
                    (key, "0" if field == "-0" and isinstance(field, _Literal) else field)
                    for key, field in value[:index]
                ]
                return action, before + value[index + 1 :]
        raise _Refused("no action field")
    if isinstance(value, list) and len(value) == 2:
        action, body = value
        if isinstance(body, _Object):
            return action, body
        if action == Action.STATUS and type(body) is str:  # its class has a one-String constructor
            return action, [("responseFor", body)]
    raise _Refused("not a JSON object")


#: What children have a reason to send.
_OF_CHILDREN: Final = frozenset({Action.STATUS, Action.CHECKPOINT})
_ACTION_FIELD: Final = re.compile(r'"action"\s*:\s*"([A-Za-z]+)"')
_GLUED_MESSAGE: Final = re.compile(r'\{[^{}]*?"action"\s*:\s*"([A-Za-z]+)"')


def _glued(line: bytes, text: str, start: int, announced: Collection[str]) -> Junk | None:
    """The first of a child's messages that begins behind a place of the line, if there is one."""
    found = _GLUED_MESSAGE.search(text, start)
    if found is None or not _is_of_child(found[1], announced):
        return None
    return Junk(line, _GLUED, found[1], is_glued=True, status=_status_at_end(text))


def _status_at_end(text: str) -> str | None:
    """The action that a status at the end of the text names."""
    try:
        message = _message(_DECODER.decode(text[text.rfind("{") :].rstrip(_JSON_SPACE)), ())
    except (ValueError, _Refused):
        return None
    return message.response_for if isinstance(message, Status) else None


def _is_of_child(action: str, announced: Collection[str]) -> bool:
    return action in _OF_CHILDREN or (action == Action.TICK and action in announced)


def _meant(text: str, announced: Collection[str]) -> str | None:
    """The action of the child's message that a refused line was probably intended to be."""
    found = _ACTION_FIELD.search(text)
    if found is None or not text.lstrip(_JSON_SPACE).startswith("{"):
        return None
    return found[1] if _is_of_child(found[1], announced) else None


Decoded: TypeAlias = Status | CheckpointRequest | Tick | Foreign | Junk


def decode_from_child(line: bytes, announced: Collection[str] = ()) -> Decoded:
    """What the Java daemon would make of a line on a child's stdout.

    Args:
        line: without its line end; not empty (empty lines are nobody's business).
        announced: additions that the child may use, see ``kcl_mld_protocol.additions``.

    Returns:
        the message; :class:`Foreign` for a valid message of the other direction; :class:`Junk`
        with the reason for everything else.
    """
    return decode_line(line, announced)[0]


def decode_line(line: bytes, announced: Collection[str]) -> tuple[Decoded, Junk | None]:
    """As :func:`decode_from_child`, with the text lost behind a message: another one on its line."""
    text = line.decode("utf-8", "replace")
    start = len(text) - len(text.lstrip(_JSON_SPACE))
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        glued = _glued(line, text, start + 1, announced)
        return glued or Junk(line, "not JSON", _meant(text, announced)), None
    try:
        message = _message(value, announced)
    except _Refused as refused:
        glued = _glued(line, text, end, announced)
        return glued or Junk(line, str(refused), _meant(text, announced)), None
    glued = _glued(line, text, end, announced) if end < len(text) else None
    return message, None if glued is None else replace(glued, reason=_SECOND)


def _status(fields: dict[str, Any]) -> Status:
    """A status; one that names a failed record has failed, whatever its other fields."""
    failure, number = fields.get("failure"), fields.get("failedSequenceNumber")
    if failure is None and number is not None:
        failure = ""
    return Status(fields.get("responseFor"), failure, number, fields.get("failedSubSequenceNumber"))


def _message(
    value: object, announced: Collection[str]
) -> Status | CheckpointRequest | Tick | Foreign:
    if value is None:
        raise _Refused("a bare null")
    action, pairs = _split_action(value)
    known = _FIELDS.get(action) if type(action) is str else None
    if known is None and action == Action.TICK and action in announced:
        return Tick(_take(pairs, _TICK_FIELDS).get("seconds"))
    if known is None:
        raise _Refused(f"unknown action {action!r:.100}")
    if action == Action.STATUS and FAILURE in announced:
        return _status(_take(pairs, _FAILURE_FIELDS))
    fields = _take(pairs, known)
    if action == Action.STATUS:
        return Status(fields.get("responseFor"))
    if action == Action.CHECKPOINT:
        return CheckpointRequest(fields.get("sequenceNumber"), fields.get("subSequenceNumber"))
    return Foreign(Action(str(action)))
