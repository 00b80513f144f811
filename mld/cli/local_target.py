"""What a properties file reads, which ``kcl-mld local`` has to create."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from kcl_mld.config.stream import TABLE_STREAM_FORM, TableStreamArn, is_arn_of_table
from kcl_mld.config.stream_list import parse_streams
from kcl_mld.errors import ConfigError, MalformedData

if TYPE_CHECKING:
    from collections.abc import Mapping

_ARN = re.compile(r"arn:[^:]+:kinesis:([a-z0-9-]+):(\d{12}):stream/([^/]+)")
_CONSUMER_KEY = re.compile(r"fanoutconfig\.consumerarn|stream\..+\.consumerarn")
_DEFAULT_REGION = "us-east-1"
_DEFAULT_ACCOUNT = "123456789012"


@dataclass(frozen=True, slots=True)
class Target:
    """The streams that a properties file reads.

    Attributes:
        streams: their names; none where the file has only a rule for names or tags.
        account_id: whose they are; made up where the file names no ARN.
        consumers: ARNs of the registered consumers that the file names.
        tables: streams of tables.
    """

    streams: tuple[str, ...]
    region: str
    account_id: str
    consumers: tuple[str, ...] = ()
    tables: tuple[TableStreamArn, ...] = ()


def target_of(values: Mapping[str, str], source: str) -> Target:
    """Streams, region and account of a properties file.

    Args:
        values: from :func:`values_of`.

    Raises:
        ConfigError: the file names no stream, or streams of several regions or accounts, which the
            embedded AWS has not.
    """
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
    for text in (arn, values.get("streamname", "").strip()):
        if is_arn_of_table(text):
            table = _table_stream(text, source)
            return Target((), table.region, table.account, tables=(table,))
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
    arns = [one.arn for one in listed if one.arn is not None]
    tables = tuple(arn for arn in arns if isinstance(arn, TableStreamArn))
    regions = {arn.region for arn in arns} | (set() if tables else {region})
    accounts = {one.account for one in listed if one.account is not None}
    for what, found in (("regions", regions), ("accounts", accounts)):
        if len(found) > 1:
            text = f"of several {what}, {', '.join(sorted(found))}: the embedded AWS has one"
            raise ConfigError(text, key="streams", where=source)
    account = next(iter(accounts), _DEFAULT_ACCOUNT)
    if tables:
        return Target((), tables[0].region, account, tables=tables)
    return Target(tuple(one.name for one in listed), region, account)


def _table_stream(text: str, source: str) -> TableStreamArn:
    try:
        return TableStreamArn.parse(text)
    except MalformedData as error:
        raise ConfigError(f"{error}; {TABLE_STREAM_FORM}", where=source) from None
