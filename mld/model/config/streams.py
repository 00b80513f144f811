"""Which stream is read, or which streams: the part of the configuration that names them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.model.children.child_command import command_problems
from mld.model.config.checks import check_stream
from mld.model.config.config import StreamConfig
from mld.model.config.former import FORMER_KEYS, former_policy_of
from mld.model.config.selection import SELECTION_KEYS, selection_of
from mld.model.findings import Problem, Severity
from mld.model.masking import mask
from mld.model.sequence import InitialPosition, Sentinel
from mld.model.streams.listed_stream import ListedStream, parse_streams
from mld.model.streams.stream_list import StreamList

if TYPE_CHECKING:
    from mld.model.config.settings import Settings
    from mld.model.streams.stream_list import StreamOption

#: Keys that mean nothing to a worker of one stream.
_MULTI_ONLY = (
    "streams",
    *SELECTION_KEYS,
    *FORMER_KEYS,
    "streamDiscoveryIntervalMillis",
    "streamCreationEpochUnit",
    "orphanedStreamInitialPositionInStream",
    "initializeMessageExtras",
)


def stream_of(settings: Settings) -> StreamConfig:
    """The stream of a worker of one stream; without a name for a worker of several.

    Region and initial position hold for all streams.
    """
    position = _initial_position(settings)
    region = settings.text("regionName")
    if settings.flag("multiStream"):
        return StreamConfig(name="", region=region, initial_position=position)
    addressing = settings.value("streamArnAddressing") == "arn"
    name, arn = check_stream(settings, by_arn=addressing)
    return StreamConfig(
        name=name,
        arn=None if arn is None else str(arn),
        arn_addressing=addressing and arn is not None,
        region=region,
        initial_position=position,
    )


def streams_of(settings: Settings) -> StreamList | None:
    """The streams of a multi-stream worker; None without ``multiStream = true``."""
    if not settings.flag("multiStream"):
        _report_without_multi_stream(settings)
        return None
    selection = selection_of(settings)
    listed = _listed(settings)
    if listed is None and selection is None:
        settings.error(
            "multiStream",
            "true needs one of the properties streams, streamNamePattern and streamTags",
            "write streams = name, name, …",
        )
        return None
    listed = listed or ()
    if selection is None:  # else it is known only later which streams are meant
        _compare_with_single(settings, listed)
        _report_idle_options(settings, listed)
    if settings["fanoutConfig.consumerArn"].is_set:
        advice = "write stream.<name>.consumerArn"
        settings.error("fanoutConfig.consumerArn", "names the consumer of one stream", advice)
    _report_programs(settings)
    _report_two_positions(settings)
    _report_regions(settings, listed)
    return StreamList(
        streams=listed,
        selection=selection,
        options=tuple(settings.stream_options),
        epoch_unit=str(settings.value("streamCreationEpochUnit")),
        orphan_position=InitialPosition(
            Sentinel(str(settings.value("orphanedStreamInitialPositionInStream")))
        ),
        former=former_policy_of(settings),
        tells_stream=settings.flag("initializeMessageExtras"),
        discovery_interval_s=settings.seconds("streamDiscoveryIntervalMillis"),
    )


def _listed(settings: Settings) -> tuple[ListedStream, ...] | None:
    text = settings.text("streams")
    if text is None:
        return None
    listed, problems = parse_streams(text)
    for problem in problems:
        settings.report("streams", problem)
    return listed


def _report_without_multi_stream(settings: Settings) -> None:
    """Keys of several streams in a file for one: lease keys differ, so nothing is guessed."""
    advice = "write multiStream = true, or remove the line"
    for name in _MULTI_ONLY:
        if settings[name].is_set:
            settings.error(name, "needs multiStream = true", advice)
    for option in settings.stream_options:
        problem = Problem(Severity.ERROR, "needs multiStream = true", advice)
        settings.report(mask(option.key), problem, option.line)


def _compare_with_single(settings: Settings, listed: tuple[ListedStream, ...]) -> None:
    """``streamName`` and ``streamArn``, for Java workers on the same file, must be in the list."""
    name, arn = settings.text("streamName"), settings.text("streamArn")
    if name and name not in {one.name for one in listed}:
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
                problem = Problem(Severity.WARNING, text, "keep one of the two")
                settings.report(mask(option.key), problem, option.line)


def _report_idle_options(settings: Settings, listed: tuple[ListedStream, ...]) -> None:
    for option in settings.stream_options:
        if not any(option.matches(one.name) for one in listed):
            text = f"no stream of the list matches {mask(option.pattern)!r}"
            problem = Problem(Severity.WARNING, text, "correct the name")
            settings.report(mask(option.key), problem, option.line)


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
    plain_line, extended_line = settings[plain].line, settings[extended].line
    if plain_line is not None and extended_line is not None:
        first, second = (plain, extended) if plain_line < extended_line else (extended, plain)
        text = f"overridden by {second} in line {settings[second].line}; in Java either may win"
        settings.warn(first, text, "keep one of the two")
    seconds = settings.value(extended)
    if isinstance(seconds, int) and (plain_line is None or plain_line < (extended_line or 0)):
        return InitialPosition(Sentinel.AT_TIMESTAMP, float(seconds))
    return InitialPosition(Sentinel(str(settings.value(plain))))
