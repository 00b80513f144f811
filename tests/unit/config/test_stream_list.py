"""The properties of a worker of many streams: which streams, and what holds for one of them."""

import pytest

from kcl_mld.config.config import KEYS
from kcl_mld.config.findings import Severity
from kcl_mld.config.properties import parse
from kcl_mld.config.stream import Stream, StreamArn
from kcl_mld.config.stream_list import (
    FormerPolicy,
    FormerStrategy,
    ListedStream,
    may_be,
    parse_streams,
)
from kcl_mld.config.stream_options import StreamOption, parse_option
from kcl_mld.config.streams import named_in
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel
from tests.unit.config.test_config_build import built, config, errors, warnings

ACCOUNT = "123456789012"
ARN = f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/clicks"
MANY = {"multiStream": "true", "without": ("streamName",)}


def many(*lines, streams="orders, clicks", **more):
    return built(f"streams = {streams}", *lines, **MANY, **more)


def streams_of(*lines, **more):
    return many(*lines, **more).require().streams


# --- the list


def test_a_stream_is_listed_by_name_arn_or_identifier():
    listed, problems = parse_streams(f" orders ,{ARN},, {ACCOUNT}:views:1700000000")
    assert problems == ()
    assert listed == (
        ListedStream("orders"),
        ListedStream("clicks", arn=StreamArn.parse(ARN), account=ACCOUNT),
        ListedStream("views", account=ACCOUNT, epoch=1700000000),
    )
    assert [str(one) for one in listed] == ["orders", ARN, f"{ACCOUNT}:views:1700000000"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names no stream"),
        (" , ", "names no stream"),
        ("or ders", "not a valid stream name"),
        ("arn:aws:s3:::bucket", "not the ARN of a Kinesis stream"),
        (f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/a/b", "not a valid stream name"),
        (":a:1", "not of the form"),
        ("1:a:", "not of the form"),
        ("x:a:1", "not of the form"),
        ("1:a:b:1", "not of the form"),
        ("1:a:0", "not of the form"),
        ("1:a:9223372036854775808", "not of the form"),
        ("1:a b:7", "not a valid stream name"),
        ("orders, orders", "orders may name the same stream as orders"),
        (f"clicks, {ARN}", "may name the same stream as clicks"),
        (f"{ACCOUNT}:clicks:1, {ARN}", "may name the same stream"),
    ],
)  # fmt: skip
def test_what_is_no_list_of_streams(text, why):
    _, (problem,) = parse_streams(text)
    assert problem.severity is Severity.ERROR
    assert why in problem.text


def test_streams_of_one_name_in_two_accounts_are_two():
    other = ARN.replace(ACCOUNT, "000011112222")
    assert parse_streams(f"{ARN}, {other}")[1] == ()


# --- the file


def test_a_file_of_many_streams():
    streams = streams_of()
    assert [one.name for one in streams.streams] == ["orders", "clicks"]
    assert streams.epoch_unit == "auto"
    assert streams.orphan_position == InitialPosition(Sentinel.LATEST)
    assert streams.tells_stream
    assert streams.discovery_interval_s == 60
    assert config().streams is None
    assert many().require().stream.name == ""


def test_every_property_of_many_streams_counts():
    streams = streams_of(
        "streamCreationEpochUnit = millis",
        "orphanedStreamInitialPositionInStream = TRIM_HORIZON",
        "initializeMessageExtras = false",
        "streamDiscoveryIntervalMillis = 1500",
    )
    assert streams.epoch_unit == "millis"
    assert streams.orphan_position == InitialPosition(Sentinel.TRIM_HORIZON)
    assert not streams.tells_stream
    assert streams.discovery_interval_s == 1.5


@pytest.mark.parametrize(
    "line",
    [
        "streams = a",
        "streamCreationEpochUnit = auto",
        "orphanedStreamInitialPositionInStream = LATEST",
        "initializeMessageExtras = true",
        "streamDiscoveryIntervalMillis = 5",
        "streamNamePattern = x*",
        "streamNameExcludePattern = x*",
        "streamTags = a=b",
        "streamDiscoveryGraceMillis = 5",
        "maxStreams = 5",
        "formerStreamsLeasesDeletionStrategy = NO_DELETION",
        "formerStreamsLeasesDeletionWaitMillis = 5",
        "formerStreamsForLeaseCleanup = a",
        "stream.a.executableName = x",
    ],
)
def test_a_property_of_many_streams_in_a_file_of_one_is_an_error(line):
    assert errors(built(line)) == ["needs multiStream = true"]


def test_many_streams_must_be_listed():
    needed = "one of the properties streams, streamNamePattern and streamTags"
    assert errors(built(**MANY)) == [f"true needs {needed}"]
    assert errors(many(streams="a b")) == ["'a b' is not a valid stream name"]


def test_the_stream_of_java_workers_on_the_same_file_must_be_in_the_list():
    assert errors(many("streamName = clicks")) == []
    assert errors(many("streamName = other")) == ["is not one of streams"]
    assert errors(many(f"streamArn = {ARN}", streams=f"a, {ARN}")) == []
    assert errors(many(f"streamArn = {ARN}")) == ["is not one of streams"]


def test_all_streams_are_of_the_region_of_the_client():
    other = ARN.replace("us-east-1", "eu-west-1")
    (text,) = errors(many(streams=f"a, {other}"))
    assert "is in eu-west-1, but the Kinesis client is in us-east-1" in text
    assert errors(many("kinesisClient.region = eu-west-1", streams=f"a, {other}")) == []


# --- options of one stream


def test_the_own_name_wins_over_a_glob_and_an_earlier_line_over_a_later():
    streams = streams_of(
        "stream.*.executableName = every.py  --all",
        "stream.cl*.executableName = late.py",
        "stream.orders.executableName = orders.py",
        "stream.clicks.initialPositionInStreamExtended = 1700000000",
        "stream.clicks.initialPositionInStream = LATEST",
        "stream.[o]rders.initialPositionInStream = TRIM_HORIZON",
    )
    orders, clicks = streams.options_of("orders"), streams.options_of("clicks")
    assert orders.argv == ("orders.py",)
    assert orders.initial_position == InitialPosition(Sentinel.TRIM_HORIZON)
    assert clicks.argv == ("every.py", "--all")
    assert clicks.initial_position == InitialPosition(Sentinel.AT_TIMESTAMP, 1_700_000_000.0)
    assert streams.options_of("x.y").argv == ("every.py", "--all")
    assert streams.program_of("orders").key == "stream.orders.executableName"
    assert streams_of().program_of("orders") is None


def test_a_name_may_have_dots():
    option, problem = parse_option("stream.a.b.c.executableName", " x ", 7)
    assert option == StreamOption("a.b.c", "executableName", "x")
    assert (option.line, problem) == (7, None)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("stream.a.initialPositionInStream = AT_TIMESTAMP", "'AT_TIMESTAMP' is not one of LATEST"),
        ("stream.a.initialPositionInStreamExtended = 5s", "'5s' is not a number of seconds"),
        ("stream.a.executableName =", "names no program"),
        ("stream.a.retrievalMode = PUSH", "'PUSH' is not one of FANOUT, POLLING"),
        ("stream.a.retrievalMode = DEFAULT", "'DEFAULT' is not one of FANOUT, POLLING"),
        ("stream.a.consumerArn = c", "'c' is not the ARN of a consumer"),
        (f"stream.a.consumerArn = {ARN}/consumer/c:1", "a consumer of stream clicks"),
        (f"stream.*.consumerArn = {ARN}/consumer/c:1", "a consumer of stream clicks"),
        (f"fanoutConfig.consumerArn = {ARN}/consumer/c:1", "names the consumer of one stream"),
    ],
)
def test_an_option_that_makes_no_sense(line, why):
    (text,) = errors(many(line, streams="a"))
    assert text.startswith(why)


@pytest.mark.parametrize(
    ("line", "position"),
    [
        ("initialPositionInStream = trim_horizon", InitialPosition(Sentinel.TRIM_HORIZON)),
        ("initialPositionInStreamExtended = +5", InitialPosition(Sentinel.AT_TIMESTAMP, 5.0)),
    ],
)
def test_a_position_of_one_stream_is_read_as_that_of_all(line, position):
    assert streams_of(f"stream.orders.{line}").options_of("orders").initial_position == position
    assert config(line).stream.initial_position == position


@pytest.mark.parametrize("key", ["streamNamePattern", "streamNameExcludePattern"])
def test_a_pattern_that_no_stream_can_match_is_a_warning(key):
    found = many(*{"streamNamePattern = o*": 0, f"{key} = /orders-.*": 0})
    assert any("no stream has a name like '/orders-.*'" in text for text in warnings(found))


def test_how_the_records_of_one_stream_are_got():
    streams = streams_of(
        "stream.cl*.retrievalMode = polling",
        f"stream.clicks.consumerArn = {ARN}/consumer/c:1",
        "stream.orders.retrievalMode = FANOUT",
    )
    orders, clicks = streams.options_of("orders"), streams.options_of("clicks")
    assert (orders.is_pushed, orders.consumer_arn) == (True, None)
    assert (clicks.is_pushed, clicks.consumer_arn) == (False, f"{ARN}/consumer/c:1")
    assert streams.options_of("other").is_pushed is None


def test_options_that_hold_for_nothing_are_said():
    assert warnings(many("stream.a.b = 1"))[0] == "not a property of kcl-mld"
    assert warnings(many("stream.executableName = x"))[0] == "not a property of kcl-mld"
    text = "no stream of the list matches 'x*'"
    assert warnings(many("stream.x*.executableName = a")) == [text]
    quoted = warnings(many("stream.orders.executableName = a 'b c'"))
    assert quoted[0].startswith("quotes are passed to the program as they are")


# --- streams that are chosen by a rule


def test_a_rule_is_enough_and_may_stand_beside_a_list():
    lines = ("streamNamePattern = o*, /", "streamNameExcludePattern = /.*-test/")
    more = ("streamTags = a=b", "streamDiscoveryGraceMillis = 2500", "maxStreams = 7")
    streams = built(*lines, *more, **MANY).require().streams
    assert streams.streams == ()
    rule = streams.selection
    assert rule.has_name("orders")
    assert not rule.has_name("orders-test")
    assert (rule.tags, rule.grace_s, rule.max_streams) == ((("a", "b"),), 2.5, 7)
    both = streams_of("streamTags = a=b")
    assert [one.name for one in both.streams] == ["orders", "clicks"]
    assert both.selection.names is None
    assert streams_of().selection is None
    zeros = streams_of("streamTags = a=b", "maxStreams = 0", "streamDiscoveryGraceMillis = 0")
    assert (zeros.selection.grace_s, zeros.selection.max_streams) == (0.0, 0)


def test_with_a_rule_any_stream_may_be_meant():
    lines = ("streamNamePattern = o*", "streamName = x", "stream.x.executableName = python x.py")
    assert [one for one in many(*lines).findings if one.severity is not Severity.INFO] == []


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("streamNamePattern = /(/", "not a regular expression"),
        ("streamTags = team", "not of the form key=value"),
        ("streamNameExcludePattern = x", "needs streamNamePattern or streamTags"),
        ("maxStreams = 3", "needs streamNamePattern or streamTags"),
        ("streamDiscoveryGraceMillis = 3", "needs streamNamePattern or streamTags"),
    ],
)
def test_a_rule_that_cannot_be_read_is_an_error(line, why):
    (text,) = errors(many(line))
    assert why in text


# --- leases of former streams


def test_leases_of_former_streams_stay_unless_the_file_says_so():
    assert streams_of().former == FormerPolicy()
    assert FormerPolicy().strategy is FormerStrategy.NO_DELETION
    assert FormerPolicy().wait_s == 3600.0


@pytest.mark.parametrize("strategy", FormerStrategy)
def test_strategies_have_the_names_of_java_and_shorter_ones(strategy):
    for text in (strategy.value, strategy.name):
        streams = streams_of(f"formerStreamsLeasesDeletionStrategy = {text}")
        assert streams.former.strategy is strategy


def test_every_strategy_is_a_choice_of_the_property():
    choices = KEYS["formerStreamsLeasesDeletionStrategy"].choices
    assert choices == (*FormerStrategy, *FormerStrategy.__members__)


PROVIDED = "formerStreamsLeasesDeletionStrategy = PROVIDED_LIST"


def test_the_wait_and_the_list_of_former_streams():
    lines = (PROVIDED, "formerStreamsLeasesDeletionWaitMillis = 0")
    named = f"formerStreamsForLeaseCleanup = a, {ACCOUNT}:b:7"
    former = streams_of(*lines, named).former
    assert former.wait_s == 0.0
    assert former.named == (ListedStream("a"), ListedStream("b", account=ACCOUNT, epoch=7))
    assert streams_of(*lines, "formerStreamsForLeaseCleanup =").former.named == ()


@pytest.mark.parametrize(
    "line", ["formerStreamsForLeaseCleanup = a", "formerStreamsLeasesDeletionWaitMillis = 7"]
)
def test_what_has_no_effect_without_a_strategy_is_a_warning(line):
    (text,) = warnings(many(line))
    assert text.startswith("has no effect with formerStreamsLeasesDeletionStrategy = NO_STREAMS")


def test_a_former_stream_that_is_none_is_an_error():
    (text,) = errors(many(PROVIDED, "formerStreamsForLeaseCleanup = a b"))
    assert "'a b' is not a valid stream name" in text


def test_the_list_of_former_streams_is_read_anew():
    text = b"formerStreamsForLeaseCleanup = a\nx = y\nformerStreamsForLeaseCleanup = b, c\n"
    assert named_in(parse(text)) == (ListedStream("b"), ListedStream("c"))
    assert named_in(parse(b"x = y")) == ()
    with pytest.raises(ConfigError, match="not a valid stream name"):
        named_in(parse(b"formerStreamsForLeaseCleanup = a b"))


@pytest.mark.parametrize(
    ("item", "yes"),
    [
        ("orders", True),
        (f"{ACCOUNT}:orders:5", True),
        (f"{ACCOUNT}:orders:6", False),
        ("111111111111:orders:5", False),
        (f"arn:aws:kinesis:us-east-1:{ACCOUNT}:stream/orders", True),
        ("arn:aws:kinesis:us-east-1:111111111111:stream/orders", False),
        ("clicks", False),
    ],
)
def test_an_item_may_be_any_stream_that_it_does_not_rule_out(item, yes):
    ((listed,), _) = parse_streams(item)
    assert may_be(listed, Stream("orders", account=ACCOUNT, epoch=5)) is yes
