"""A copy of a properties file that points at the embedded AWS."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mld.errors import ConfigError
from mld.model.config.properties import Entry, last_of_each, parse
from mld.model.streams.listed_stream import parse_streams

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys (lower case) that decide where requests go and who signs them; all are replaced.
_REPLACED = frozenset(
    {
        "awscredentialsprovider",
        "awscredentialsproviderdynamodb",
        "awscredentialsprovidercloudwatch",
        "awscredentialsproviderglue",
        "regionname",
        "kinesisendpoint",
        "dynamodbendpoint",
        "cloudwatchendpoint",
        "glueendpoint",
    }
)
_REPLACED_PREFIXES = ("kinesisclient.", "dynamodbclient.", "cloudwatchclient.", "glueclient.")
_PLAIN = re.compile(r"[^A-Za-z0-9._/-]")
_ARN = re.compile(r"arn:[^:]+:kinesis:([a-z0-9-]+):(\d{12}):stream/([^/]+)")
_CONSUMER_KEY = re.compile(r"fanoutconfig\.consumerarn|stream\..+\.consumerarn")
_DEFAULT_REGION = "us-east-1"
_DEFAULT_ACCOUNT = "123456789012"


@dataclass(frozen=True, slots=True)
class Target:
    """The streams that a properties file reads.

    Attributes:
        streams: their names; none where the file has only a rule for names or tags.
        region: where they lie.
        account_id: whose they are; made up where the file names no ARN.
        consumers: ARNs of the registered consumers that the file names.
    """

    streams: tuple[str, ...]
    region: str
    account_id: str
    consumers: tuple[str, ...] = ()


def target_of(data: bytes, source: str) -> Target:
    """Streams, region and account of a properties file.

    Raises:
        ConfigError: the grammar is broken, the file names no stream, or streams of several regions
            or accounts, which the embedded Kinesis has not.
    """
    values = _values(data, source)
    consumers = tuple(values[key].strip() for key in sorted(values) if _CONSUMER_KEY.fullmatch(key))
    consumers = tuple(arn for arn in consumers if arn)
    target = _target(values, source)
    named = _ARN.match(consumers[0]) if consumers else None
    if named is not None and target.account_id == _DEFAULT_ACCOUNT:
        target = replace(target, account_id=named[2])
    return replace(target, consumers=consumers)


def _target(values: Mapping[str, str], source: str) -> Target:
    region = values.get("regionname", "").strip() or _DEFAULT_REGION
    if values.get("multistream", "").strip().lower() == "true":
        if "streams" not in values and {"streamnamepattern", "streamtags"} & values.keys():
            return Target((), region, _DEFAULT_ACCOUNT)
        return _many(values.get("streams", ""), region, source)
    arn = values.get("streamarn", "").strip()
    if arn:
        match = _ARN.fullmatch(arn)
        if match is None:
            raise ConfigError("not the ARN of a stream", key="streamArn", where=source)
        # Java, and so the worker, reads the ARN's stream in its own region.
        own_region = values.get("regionname", "").strip() or match[1]
        return Target((match[3],), own_region, match[2])
    stream = values.get("streamname", "").strip()
    if not stream:
        raise ConfigError("names the stream to create", key="streamName", where=source)
    return Target((stream,), region, _DEFAULT_ACCOUNT)


def _many(text: str, region: str, source: str) -> Target:
    listed, problems = parse_streams(text)
    for problem in problems:
        raise ConfigError(problem.text, key="streams", where=source)
    for what, found in (
        ("regions", {one.arn.region for one in listed if one.arn is not None} | {region}),
        ("accounts", {one.account for one in listed if one.account is not None}),
    ):
        if len(found) > 1:
            text = f"of several {what}, {', '.join(sorted(found))}: the embedded Kinesis has one"
            raise ConfigError(text, key="streams", where=source)
    account = next((one.account for one in listed if one.account is not None), _DEFAULT_ACCOUNT)
    return Target(tuple(one.name for one in listed), region, account)


def starts_at_latest(data: bytes, source: str) -> bool:
    """Whether a worker of this file skips what is in the stream before it starts."""
    values = _values(data, source)
    position = values.get("initialpositioninstream", "").strip().upper() or "LATEST"
    return position == "LATEST" and "initialpositioninstreamextended" not in values


def overridden(data: bytes, source: str, replacements: Mapping[str, str]) -> bytes:
    """The file's entries without endpoints, region and credentials, then ``replacements``.

    What is kept stays in its line, so that findings about the copy are right for the file.

    Args:
        data: the file.
        source: its path as typed, for errors.
        replacements: key to value; each also replaces the file's own entry of that key.
    """
    dropped = _REPLACED | {key.lower() for key in replacements}
    lines: list[str] = []
    for entry in parse(data, source):
        key = entry.key.lower()
        if key not in dropped and not key.startswith(_REPLACED_PREFIXES):
            lines += [""] * (entry.line - 1 - len(lines))
            lines.append(_line(entry.key, entry.value))
    lines += [_line(key, value) for key, value in replacements.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _line(key: str, value: str) -> str:
    return f"{_escaped(key)}={_escaped(value)}"


def _values(data: bytes, source: str) -> dict[str, str]:
    entries: dict[str, Entry] = last_of_each(parse(data, source))
    return {key.lower(): entry.value for key, entry in entries.items()}


def _escaped(text: str) -> str:
    return _PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
