"""A copy of a properties file that points at the embedded AWS."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.errors import ConfigError
from mld.model.properties import Entry, last_of_each, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Keys (lower case) that decide where requests go and who signs them; all are replaced.
_REPLACED = frozenset(
    {
        "awscredentialsprovider",
        "awscredentialsproviderdynamodb",
        "awscredentialsprovidercloudwatch",
        "regionname",
        "kinesisendpoint",
        "dynamodbendpoint",
        "cloudwatchendpoint",
    }
)
_REPLACED_PREFIXES = ("kinesisclient.", "dynamodbclient.", "cloudwatchclient.")
_PLAIN = re.compile(r"[^A-Za-z0-9._/-]")
_ARN = re.compile(r"arn:[^:]+:kinesis:([a-z0-9-]+):(\d{12}):stream/([^/]+)")
_DEFAULT_REGION = "us-east-1"
_DEFAULT_ACCOUNT = "123456789012"


@dataclass(frozen=True, slots=True)
class Target:
    """The stream that a properties file reads.

    Attributes:
        stream: its name.
        region: where it lies.
        account_id: whose it is; made up where the file names it by name alone.
    """

    stream: str
    region: str
    account_id: str


def target_of(data: bytes, source: str) -> Target:
    """Stream, region and account of a properties file.

    Raises:
        ConfigError: the grammar is broken, or the file names no stream.
    """
    values = _values(data, source)
    region = values.get("regionname", "").strip() or _DEFAULT_REGION
    arn = values.get("streamarn", "").strip()
    if arn:
        match = _ARN.fullmatch(arn)
        if match is None:
            raise ConfigError("not the ARN of a stream", key="streamArn", where=source)
        return Target(match[3], match[1], match[2])
    stream = values.get("streamname", "").strip()
    if not stream:
        raise ConfigError("names the stream to create", key="streamName", where=source)
    return Target(stream, region, _DEFAULT_ACCOUNT)


def starts_at_latest(data: bytes, source: str) -> bool:
    """Whether a worker of this file skips what is in the stream before it starts."""
    values = _values(data, source)
    position = values.get("initialpositioninstream", "").strip().upper() or "LATEST"
    return position == "LATEST" and "initialpositioninstreamextended" not in values


def overridden(data: bytes, source: str, replacements: Mapping[str, str]) -> bytes:
    """The file's entries without endpoints, region and credentials, then ``replacements``.

    Args:
        data: the file.
        source: its path as typed, for errors.
        replacements: key to value; each also replaces the file's own entry of that key.
    """
    dropped = _REPLACED | {key.lower() for key in replacements}
    kept = [
        (entry.key, entry.value)
        for entry in last_of_each(parse(data, source)).values()
        if entry.key.lower() not in dropped and not entry.key.lower().startswith(_REPLACED_PREFIXES)
    ]
    lines = (
        f"{_escaped(key)}={_escaped(value)}\n" for key, value in (*kept, *replacements.items())
    )
    return "".join(lines).encode("ascii")


def _values(data: bytes, source: str) -> dict[str, str]:
    entries: dict[str, Entry] = last_of_each(parse(data, source))
    return {key.lower(): entry.value for key, entry in entries.items()}


def _escaped(text: str) -> str:
    return _PLAIN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
