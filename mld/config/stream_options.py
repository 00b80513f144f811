"""What a file changes for one stream: ``stream.<name>.<option>``, or for all whose names match a glob."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kcl_mld.config.child_command import split_command
from kcl_mld.config.findings import Problem, Severity
from kcl_mld.kernel.model.masking import mask
from kcl_mld.kernel.model.sequence import InitialPosition, Sentinel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: What names of options begin with, before the stream's name.
OPTION_PREFIX = "stream."
CHILDREN_KEY = "childrenPerShard"
#: Of one shard.
MOST_CHILDREN = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What holds for some streams only; None = as for all.

    Attributes:
        initial_position: start of their shards without a checkpoint.
        is_pushed: by enhanced fan-out, or polled.
        children: of a shard, 1 to :data:`MOST_CHILDREN`.
    """

    initial_position: InitialPosition | None = None
    argv: tuple[str, ...] | None = None
    is_pushed: bool | None = None
    consumer_arn: str | None = None
    children: int | None = None


@dataclass(frozen=True, slots=True)
class StreamOption:
    """One line ``stream.<pattern>.<option> = <text>``.

    Attributes:
        pattern: a stream's name, or a glob of names (``*``, ``?``, ``[…]``).
        option: one of :data:`OPTIONS`.
    """

    pattern: str
    option: str
    text: str
    line: int = field(default=0, compare=False)

    @property
    def key(self) -> str:
        """The property as written."""
        return f"{OPTION_PREFIX}{self.pattern}.{self.option}"

    @property
    def is_exact(self) -> bool:
        """True when the pattern is one name."""
        return not any(letter in self.pattern for letter in "*?[")

    def matches(self, name: str) -> bool:
        """True when it holds for that stream."""
        return fnmatch.fnmatchcase(name, self.pattern)


#: Values of the option ``retrievalMode``; a stream that has none is read as all are.
_MODES = {"FANOUT": True, "POLLING": False}
_POSITIONS = (Sentinel.LATEST, Sentinel.TRIM_HORIZON)
_CONSUMER = re.compile(r"(?P<stream>arn:.+:stream/(?P<name>[^/]+))/consumer/[^/]+\Z")


def parse_option(key: str, text: str, line: int = 0) -> tuple[StreamOption | None, Problem | None]:
    """Read one line whose key begins with :data:`OPTION_PREFIX`.

    Returns:
        The option, and the findings about it; None for a line without a meaning.
    """
    pattern, _, option = key.removeprefix(OPTION_PREFIX).rpartition(".")
    if option not in OPTIONS or not pattern:
        known = ", ".join(f"{OPTION_PREFIX}<name>.{name}" for name in OPTIONS)
        return None, Problem(Severity.WARNING, "not a property of kcl-mld", f"known: {known}")
    found = StreamOption(pattern, option, text.strip(), line)
    why = OPTIONS[option].why_wrong(found)
    return found, None if why is None else Problem(Severity.ERROR, *why)


def _why_no_position(option: StreamOption) -> tuple[str, str] | None:
    if option.text.upper() in _POSITIONS:
        return None
    extended = f"stream.{option.pattern}.initialPositionInStreamExtended"
    return _not_one_of(option, _POSITIONS), f"for a time write {extended}"


def _why_no_time(option: StreamOption) -> tuple[str, str] | None:
    if re.fullmatch(r"\+?[0-9]{1,18}", option.text):
        return None
    return f"{mask(option.text)!r} is not a number of seconds since 1970", ""


def _why_no_mode(option: StreamOption) -> tuple[str, str] | None:
    if option.text.upper() in _MODES:
        return None
    return _not_one_of(option, _MODES), "remove the line for that of all"


def _why_no_children(option: StreamOption) -> tuple[str, str] | None:
    if re.fullmatch("[1-9][0-9]?", option.text) and int(option.text) <= MOST_CHILDREN:
        return None
    why = f"{mask(option.text)!r} is not a whole number from 1 to {MOST_CHILDREN}"
    return why, "remove the line for that of all"


def _not_one_of(option: StreamOption, words: Iterable[str]) -> str:
    return f"{mask(option.text)!r} is not one of {', '.join(words)}"


def _why_no_consumer(option: StreamOption) -> tuple[str, str] | None:
    consumer = _CONSUMER.match(option.text)
    if consumer is None:
        form = "write arn:…:stream/<name>/consumer/<consumer>:<time>"
        return f"{mask(option.text)!r} is not the ARN of a consumer", form
    if consumer["name"] != option.pattern:
        return f"a consumer of stream {mask(consumer['name'])}", "name that stream in the key"
    return None


class Option(NamedTuple):
    """An option that a stream may have for itself.

    Attributes:
        field: of :class:`StreamOptions`.
        read: its text, without blanks around it, as the value of the field.
        why_wrong: the error in a line, and its remedy; None = it is valid.
    """

    field: str
    read: Callable[[str], object]
    why_wrong: Callable[[StreamOption], tuple[str, str] | None]


#: Two names of one field: the first one wins.
OPTIONS = {
    "executableName": Option("argv", split_command, lambda _: None),
    "initialPositionInStream": Option(
        "initial_position",
        lambda text: InitialPosition(Sentinel(text.upper())),
        _why_no_position,
    ),
    "initialPositionInStreamExtended": Option(
        "initial_position",
        lambda text: InitialPosition(Sentinel.AT_TIMESTAMP, float(text)),
        _why_no_time,
    ),
    "retrievalMode": Option("is_pushed", lambda text: _MODES[text.upper()], _why_no_mode),
    "consumerArn": Option("consumer_arn", str, _why_no_consumer),
    CHILDREN_KEY: Option("children", int, _why_no_children),
}


def options_of(name: str, options: Iterable[StreamOption]) -> StreamOptions:
    """The options of one stream: its own name wins over globs, an earlier glob over later ones.

    Args:
        options: in file order, each one valid.
    """
    chosen = chosen_options(name, options)
    values: dict[str, Any] = {
        field: OPTIONS[one.option].read(one.text) for field, one in chosen.items()
    }
    return StreamOptions(**values)


def chosen_options(name: str, options: Iterable[StreamOption]) -> dict[str, StreamOption]:
    """The line of one stream that counts for each field of :class:`StreamOptions`."""
    chosen: dict[str, StreamOption] = {}
    for option in sorted(
        (one for one in options if one.matches(name)), key=lambda one: not one.is_exact
    ):
        chosen.setdefault(OPTIONS[option.option].field, option)
    return chosen
