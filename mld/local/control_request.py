"""What a request to ``/_control`` may say; where it says something else, what was meant.

A misspelled fault would hit nothing, and the test that orders it would pass or fail for another
reason. So members, services and operations that there are not are refused by name.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, fields
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import botocore.session
import msgspec

from mld.local.faultplan import FaultRule
from mld.local.kinesis.model import OPERATIONS, KinesisSettings
from mld.model.masking import brief

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: botocore's name of each service that is served, by the name with which requests are signed.
_SERVICES = {"dynamodb": "dynamodb", "glue": "glue", "monitoring": "cloudwatch", "sts": "sts"}
#: Operations of S3 are told by the method of the request alone.
_S3_OPERATIONS = frozenset(f"{method}Object" for method in ("Delete", "Get", "Head", "Post", "Put"))
_KNOWN_SERVICES = ("kinesis", *_SERVICES, "s3")
#: Below it a word resembles nothing.
_CUTOFF = 0.6
#: Ten years; a clock does not go on for ever.
_MOST_S = 3.2e8


class ControlMistake(Exception):
    """A request makes no sense; the text says where, and what was perhaps meant."""


class Control(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to ``/_control``; every field may be left out.

    Attributes:
        settings: fields of :class:`KinesisSettings` to change.
        faults: rules that replace all earlier ones.
        advance_s: seconds by which the server's clock is put forward.
        consumers: ARNs of consumers that there shall be; their streams are there.
    """

    settings: dict[str, Any] = {}
    faults: list[FaultRule] | None = None
    advance_s: Annotated[float, msgspec.Meta(ge=0, le=_MOST_S)] = 0.0
    consumers: list[str] = []


def read_control(body: bytes) -> Control:
    """The request of a body.

    Raises:
        ControlMistake: it is no such request.
    """
    try:
        said = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ControlMistake(str(error)) from error
    if isinstance(said, dict):
        _require_known("", said, Control.__struct_fields__)
        rules = said.get("faults")
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, dict):
                _require_known(f"faults[{number}]: ", rule, FaultRule.__struct_fields__)
    try:
        control = msgspec.convert(said, Control)
    except msgspec.ValidationError as error:
        raise ControlMistake(str(error)) from error
    for number, fault in enumerate(control.faults or ()):
        _require_operation(f"faults[{number}]: ", fault)
    return control


def changed_settings(before: KinesisSettings, wanted: Mapping[str, Any]) -> KinesisSettings:
    """The settings with some of them replaced.

    Raises:
        ControlMistake: there is no such setting, or its value is of another type.
    """
    _require_known("settings: ", wanted, [field.name for field in fields(KinesisSettings)])
    try:
        return msgspec.convert({**asdict(before), **wanted}, KinesisSettings)
    except msgspec.ValidationError as error:
        raise ControlMistake(f"settings: {error}") from error


def _require_known(where: str, said: Iterable[str], known: Iterable[str]) -> None:
    for name in said:
        if name not in known:
            raise ControlMistake(f"{where}there is no {_unlike(name, known)}")


def _require_operation(where: str, rule: FaultRule) -> None:
    if rule.service not in {"*", *_KNOWN_SERVICES}:
        raise ControlMistake(
            f"{where}there is no service {_unlike(rule.service, _KNOWN_SERVICES)}"
            f" Served: {', '.join(_KNOWN_SERVICES)}, or * for all"
        )
    if rule.operation == "*":
        return
    services = _KNOWN_SERVICES if rule.service == "*" else (rule.service,)
    # One after the other: to read what a service of botocore has takes up to a tenth of a second.
    if not any(rule.operation in _operations(service) for service in services):
        known = frozenset[str]().union(*map(_operations, services))
        of_service = "" if rule.service == "*" else f" of {rule.service}"
        raise ControlMistake(
            f"{where}there is no operation{of_service} {_unlike(rule.operation, known)}"
        )


@cache
def _operations(service: str) -> frozenset[str]:
    if service == "kinesis":
        return OPERATIONS
    if service == "s3":
        return _S3_OPERATIONS
    model = botocore.session.Session().get_service_model(_SERVICES[service])
    return frozenset(model.operation_names)


def _unlike(word: str, known: Iterable[str]) -> str:
    """The word and what it resembles, whatever the case of its letters."""
    by_letters = {name.lower(): name for name in sorted(known)}
    close = difflib.get_close_matches(word.lower()[:100], by_letters, n=1, cutoff=_CUTOFF)
    return f"{brief(word)!r}." + (f" Did you mean {by_letters[close[0]]!r}?" if close else "")
