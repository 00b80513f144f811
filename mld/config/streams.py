"""Which stream is read, or which streams: the rules between the properties that name them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, TypeVar

from kcl_mld.config.child_command import command_problems
from kcl_mld.config.config import StreamConfig
from kcl_mld.config.keys import keys_of
from kcl_mld.config.properties import last_of_each
from kcl_mld.config.stream import DYNAMODB_STREAMS, TABLE_STREAM_FORM, StreamArn, TableStreamArn
from kcl_mld.config.stream_list import (
    NAMED_KEY,
    STRATEGY_KEY,
    WAIT_KEY,
    FormerPolicy,
    FormerStrategy,
    ListedStream,
    StreamList,
    parse_streams,
)
from kcl_mld.config.stream_selection import NamePattern, StreamSelection, parse_tags
from kcl_mld.config.table_stream import check_table_streams, key_of_table_stream, table_stream
from kcl_mld.errors import ConfigError, MalformedData
from kcl_mld.kernel.model.masking import mask
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.config.properties import Entry
    from kcl_mld.config.settings import Setting, Settings
    from kcl_mld.config.stream_options import StreamOption

T = TypeVar("T")

#: A rule that chooses streams needs one of these; the others refine it.
_RULES = ("streamNamePattern", "streamTags")
#: Kinesis refuses other names at every call.
_STREAM_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,128}\Z")
#: kclpy's sample file names a stream of this account, which nobody has; only the name counts.
_PLACEHOLDER_ACCOUNT = "000000000000"


def stream_of(settings: Settings) -> StreamConfig:
    """The stream of a worker of one stream; without a name for a worker of several.

    Region and initial position hold for all streams.
    """
    position = _initial_position(settings)
    name, by_arn = "", False
    arn: str | None = None
    key = None if settings.flag("multiStream") else key_of_table_stream(settings)
    if key is not None:
        table, by_arn = table_stream(settings, key), True
        # A wrong ARN still shows the service, on which findings about other keys depend.
        name, arn = ("", settings.text(key)) if table is None else (table.name, str(table))
    elif not settings.flag("multiStream"):
        by_arn = settings.value("streamArnAddressing") == "arn"
        name, found = _stream_and_arn(settings, by_arn=by_arn)
        arn = None if found is None else str(found)
    return settings.read(
        StreamConfig,
        name=name,
        arn=arn,
        arn_addressing=by_arn and arn is not None,
        initial_position=position,
    )


def streams_of(settings: Settings) -> StreamList | None:
    """The streams of a multi-stream worker; None without ``multiStream = true``."""
    if not settings.flag("multiStream"):
        _report_without_multi_stream(settings)
        return None
    selection = _selection(settings)
    listed = _listed(settings)
    if listed is None and selection is None:
        settings.error(
            "multiStream",
            "true needs one of the properties streams, streamNamePattern and streamTags",
            "write streams = name, name, …",
        )
        return None
    listed = listed or ()
    if selection is None:  # else the streams are known only later
        _compare_with_single(settings, listed)
        _report_idle_options(settings, listed)
    tables = [one.arn for one in listed if isinstance(one.arn, TableStreamArn)]
    if tables and len(tables) == len(listed):
        check_table_streams(settings, tables)
    else:
        _report_regions(settings, listed)
        _report_common_consumer(settings)
    _report_programs(settings)
    _report_two_positions(settings)
    return settings.read(
        StreamList,
        streams=listed,
        selection=selection,
        options=tuple(settings.stream_options),
        former=_former_policy(settings),
    )


def _report_common_consumer(settings: Settings) -> None:
    if settings["fanoutConfig.consumerArn"].is_set:
        advice = "write stream.<name>.consumerArn"
        settings.error("fanoutConfig.consumerArn", "names the consumer of one stream", advice)


def _listed(settings: Settings) -> tuple[ListedStream, ...] | None:
    text = settings.text("streams")
    if text is None:
        return None
    listed, problems = parse_streams(text)
    for problem in problems:
        settings.report("streams", problem)
    return listed


def _report_without_multi_stream(settings: Settings) -> None:
    """Keys of several streams in a file for one; lease keys differ, so they are errors."""
    advice = "write multiStream = true, or remove the line"
    for section in (StreamList, StreamSelection, FormerPolicy):
        for key in keys_of(section):
            if settings[key.name].is_set:
                settings.error(key.name, "needs multiStream = true", advice)
    for option in settings.stream_options:
        settings.error(mask(option.key), "needs multiStream = true", advice, option.line)


def _compare_with_single(settings: Settings, listed: tuple[ListedStream, ...]) -> None:
    """``streamName`` and ``streamArn``, for Java workers on the same file, must be in the list."""
    name, arn = settings.text("streamName"), settings.text("streamArn")
    names = {str(one) if one.traits is DYNAMODB_STREAMS else one.name for one in listed}
    if name and name not in names:
        settings.error(
            "streamName", "is not one of streams", "remove the line, or add the name to streams"
        )
    if arn and arn not in {str(one.arn) for one in listed}:
        settings.error(
            "streamArn", "is not one of streams", "remove the line, or add the ARN to streams"
        )


def _report_programs(settings: Settings) -> None:
    for option in settings.stream_options:
        if option.option == "executableName":
            for problem in command_problems(option.text):
                settings.report(mask(option.key), problem, option.line)


def _report_two_positions(settings: Settings) -> None:
    """Of two start positions of one name the first line counts, unlike those of all streams."""
    first: dict[str, StreamOption] = {}
    for option in settings.stream_options:
        if option.option.startswith("initialPositionInStream"):
            before = first.setdefault(option.pattern, option)
            if before is not option:
                text = f"overridden by {mask(before.key)} in line {before.line}"
                settings.warn(mask(option.key), text, "keep one of the two", option.line)


def _report_idle_options(settings: Settings, listed: tuple[ListedStream, ...]) -> None:
    if any(one.is_latest for one in listed):
        return  # a name that the file can't know
    for option in settings.stream_options:
        if not any(option.matches(one.name) for one in listed):
            text = f"no stream of the list matches {mask(option.pattern)!r}"
            settings.warn(mask(option.key), text, "correct the name", option.line)


def _report_regions(settings: Settings, listed: tuple[ListedStream, ...]) -> None:
    """One Kinesis client reads all streams."""
    region = settings.text("kinesisClient.region") or settings.text("regionName")
    for one in listed:
        if one.arn is not None and region not in {None, one.arn.region}:
            text = f"{one.arn} is in {one.arn.region}, but the Kinesis client is in {region}"
            settings.error("streams", text, "give that stream a worker of its own")


def _initial_position(settings: Settings) -> InitialPosition:
    plain, extended = "initialPositionInStream", "initialPositionInStreamExtended"
    if settings.value(plain) == Sentinel.AT_TIMESTAMP:
        settings.error(
            plain, "Invalid InitialPosition: AT_TIMESTAMP", f"write {extended} = <epoch seconds>"
        )
    plain_at, extended_at = (_order(settings[name]) for name in (plain, extended))
    if settings[plain].line is not None and settings[extended].line is not None:
        first, second = (plain, extended) if plain_at < extended_at else (extended, plain)
        text = f"overridden by {second} in line {settings[second].line}; in Java either may win"
        settings.warn(first, text, "keep one of the two")
    seconds = settings.value(extended)
    if isinstance(seconds, int) and plain_at <= extended_at:
        return InitialPosition(Sentinel.AT_TIMESTAMP, float(seconds))
    return InitialPosition(Sentinel(str(settings.value(plain))))


def _stream_and_arn(settings: Settings, *, by_arn: bool) -> tuple[str, StreamArn | None]:
    """Name of the stream and the ARN to send, if any; the ARN's name wins, as in Java.

    An ARN of account 000000000000 gives the name only, unless it is to be addressed.

    Args:
        by_arn: ``streamArnAddressing=arn``.
    """
    name = settings.text("streamName") or ""
    arn = _stream_arn(settings)
    if arn is not None:
        _compare_with_arn(settings, arn, name, by_arn=by_arn)
        name = arn.name
        settings.derive("streamName", name, "derived from streamArn")
        arn = arn if by_arn or arn.account != _PLACEHOLDER_ACCOUNT else None
    elif by_arn:
        settings.error("streamArnAddressing", "arn needs a streamArn", "write streamArn = arn:…")
    has_arn_text = bool((settings.text("streamArn") or "").strip())
    if not name.strip() and not has_arn_text:
        settings.error(
            "streamName",
            "Stream name or Stream Arn is required. Stream Arn takes precedence if both are"
            " passed in.",
        )
    elif name and not _STREAM_NAME.match(name):
        text = f"{mask(name)!r} is not a valid stream name: the Java daemon would retry for ever"
        is_arn = name.startswith("arn:")
        advice = "write streamArn = …" if is_arn else "letters, digits, _ . - and no blanks"
        settings.error("streamName", text, advice)
    return name, arn


def _order(setting: Setting) -> tuple[bool, int]:
    """Where a property is set; the greater one counts, and values outside the file come last."""
    return setting.source is not None, setting.line or 0


def _stream_arn(settings: Settings) -> StreamArn | None:
    text = settings.text("streamArn") or ""
    if not text.strip():
        return None
    lacking = ("AWS partition", "service", "AWS region", "AWS account")
    parts = text.split(":", 5)
    form = "write arn:aws:kinesis:<region>:<12 digits>:stream/<name>"
    if _STREAM_NAME.match(text):
        form = f"write streamName = {text}"
    if parts[0] != "arn" or len(parts) == 1:
        settings.error("streamArn", "Malformed ARN - doesn't start with 'arn:'", form)
        return None
    if len(parts) < 6:
        what = lacking[len(parts) - 2]
        settings.error("streamArn", f"Malformed ARN - no {what} specified", form)
        return None
    try:
        arn: StreamArn | None = StreamArn.parse(text)
    except MalformedData:
        arn = None
    # What follows the name is a qualifier, such as /consumer/name:1.
    name = "" if arn is None else arn.name.partition("/")[0]
    if arn is None or not name:
        settings.error("streamArn", f"Invalid streamArn {mask(text)}", form)
        return None
    return StreamArn(arn.partition, arn.region, arn.account, name)


def _compare_with_arn(settings: Settings, arn: StreamArn, name: str, *, by_arn: bool) -> None:
    if name and name != arn.name:
        settings.warn("streamName", f"streamArn wins: {arn.name} is read", "keep one of the two")
    for key in ("kinesisClient.region", "regionName"):
        region = settings.text(key)
        if region is None:
            continue
        if region != arn.region and arn.account == _PLACEHOLDER_ACCOUNT and not by_arn:
            settings.warn(
                "streamArn",
                f"is a sample's: only the name is used, and {arn.name} is read in {region}",
                f"remove the line and write streamName = {arn.name}",
            )
        elif region != arn.region and not by_arn:
            settings.error(
                "streamArn",
                f"is in {arn.region}, but {key} is {region}: the Java daemon would read the stream"
                f" {arn.name} of {region} instead",
                f"write {key} = {arn.region}, or streamArnAddressing = arn",
            )
        elif region != arn.region and key == "kinesisClient.region":
            settings.error(key, f"is {region}, but streamArn is in {arn.region}", "remove the line")
        return


def _selection(settings: Settings) -> StreamSelection | None:
    """The rule of the file; None without one, or with one that can't be read."""
    if not any(settings[name].is_set for name in _RULES):
        for key in keys_of(StreamSelection):
            if settings[key.name].is_set:
                settings.error(key.name, "needs streamNamePattern or streamTags", "remove the line")
        return None
    return settings.read(
        StreamSelection,
        names=_parsed(settings, "streamNamePattern", NamePattern.parse),
        excluded=_parsed(settings, "streamNameExcludePattern", NamePattern.parse),
        tags=_parsed(settings, "streamTags", parse_tags) or (),
    )


def _parsed(settings: Settings, name: str, parse: Callable[[str], T]) -> T | None:
    text = settings.text(name)
    if text is None:
        return None
    try:
        return parse(text.strip())
    except MalformedData as error:
        settings.error(name, str(error))
        return None


def _former_policy(settings: Settings) -> FormerPolicy:
    """The policy of a file; reports its findings."""
    text = str(settings.value(STRATEGY_KEY))
    strategy = FormerStrategy.read(text)
    named: tuple[ListedStream, ...] = ()
    if settings[NAMED_KEY].is_set:
        if strategy is not FormerStrategy.PROVIDED_LIST:
            settings.warn(
                NAMED_KEY, f"has no effect with {STRATEGY_KEY} = {text}", "remove the line"
            )
        try:
            named = _former_streams(settings.text(NAMED_KEY) or "")
        except ConfigError as error:
            settings.error(NAMED_KEY, error.why)
    if settings[WAIT_KEY].is_set and strategy is FormerStrategy.NO_DELETION:
        settings.warn(WAIT_KEY, f"has no effect with {STRATEGY_KEY} = {text}", "remove the line")
    return settings.read(FormerPolicy, named=named)


def named_in(entries: tuple[Entry, ...]) -> tuple[ListedStream, ...]:
    """The streams that a properties file names now in ``formerStreamsForLeaseCleanup``.

    Raises:
        ConfigError: an item is no stream.
    """
    for entry in last_of_each(entries).values():
        if entry.key == NAMED_KEY:
            return _former_streams(entry.value)
    return ()


def _former_streams(text: str) -> tuple[ListedStream, ...]:
    """Streams, none of them in blank text.

    Raises:
        ConfigError: an item is no stream.
    """
    if not text.strip():
        return ()
    listed, problems = parse_streams(text)
    if problems:
        raise ConfigError(f"{problems[0].text} ({problems[0].suggestion})", key=NAMED_KEY)
    for one in listed:
        if one.is_latest:
            raise ConfigError(f"{one} is not one stream ({TABLE_STREAM_FORM})", key=NAMED_KEY)
    return listed
