"""Arguments as typed: numbers between bounds, and suggestions for mistyped commands.

What click lets through would fail later and elsewhere: ``nan`` and ``inf``, a whole number that no
float can hold, a time-out beyond what the system can wait for. So both bounds are required.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.config.findings import nearest
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import brief

if TYPE_CHECKING:
    from click import Context, Parameter

#: Least similarity of a mistyped word and a suggestion, 0 to 1.
CUTOFF = 0.7
#: The error, and its remedy, when the working directory of this process was deleted.
GONE = "the working directory is gone"
ELSEWHERE = "start again where there is one"
#: The longest time that options take.
DAY_S = 86_400.0
_YEAR_5138_S = 1e11
_DURATION = re.compile(
    r"(?:P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?)\Z", re.IGNORECASE
)


class Finite(click.FloatRange):
    """A number between two bounds; ``nan``, ``inf`` and numbers outside are usage errors."""

    def __init__(self, least: float, most: float, *, least_open: bool = False) -> None:
        """Take what lies between them.

        Args:
            least_open: the smallest one is itself refused.
        """
        super().__init__(min=least, max=most, min_open=least_open)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> float:
        """The number; a failure is an error of usage."""
        try:
            number = float(value)
        except ValueError:
            self.fail(f"{brief(str(value))!r} is not a number", param, ctx)
        if not math.isfinite(number):
            self.fail(f"{brief(str(value))} is not a finite number", param, ctx)
        return float(super().convert(number, param, ctx))


class WholeNumber(click.IntRange):
    """A whole number between two bounds, both included; anything else is an error of usage."""

    def __init__(self, least: int, most: int) -> None:
        super().__init__(min=least, max=most)

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> int:
        """The number; a failure is an error of usage."""
        try:
            number = int(value)
        except ValueError:  # no number, or one of more digits than Python reads
            self.fail(
                f"{brief(str(value))!r} is not a whole number from {self.min} to {self.max}",
                param,
                ctx,
            )
        assert self.min is not None, "always given"
        assert self.max is not None, "always given"
        if not self.min <= number <= self.max:  # click's own words would show all digits
            self.fail(f"{brief(str(value))} is not from {self.min} to {self.max}", param, ctx)
        return number


class Duration(click.ParamType):  # type: ignore[type-arg] # generic since click 8.4 only
    """An ISO 8601 duration of days, hours, minutes and seconds, such as ``PT1H``; in seconds."""

    name = "duration"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The seconds; a failure is an error of usage."""
        found = _DURATION.match(str(value))
        if found is None or not any(found.groups()):
            self.fail(f"{value!r} is no duration such as PT1H, PT30M or P1DT12H", param, ctx)
        days, hours, minutes, seconds = (float(one or 0) for one in found.groups())
        return days * DAY_S + hours * 3600 + minutes * 60 + seconds


class PointInTime(click.ParamType):  # type: ignore[type-arg]
    """An ISO 8601 time with its offset, or epoch seconds; in epoch seconds."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The epoch seconds; a failure is an error of usage."""
        with contextlib.suppress(ValueError):
            seconds = float(value)
            if not abs(seconds) < _YEAR_5138_S:  # of this year, milliseconds are more
                self.fail(f"{value!r} is no time in epoch seconds; milliseconds?", param, ctx)
            return seconds
        try:
            found = datetime.fromisoformat(str(value))
        except ValueError:
            self.fail(f"{value!r} is no time such as 2026-11-26T08:00:00Z", param, ctx)
        if found.tzinfo is None:
            self.fail(f"{value!r} lacks an offset: add Z for UTC, or +01:00, say", param, ctx)
        return found.timestamp()


class SuggestingGroup(click.Group):
    """A group that names its commands, the nearest first, when there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but for the words of the error."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            known = self.list_commands(ctx)
            close = nearest(name.replace("_", "-"), known, CUTOFF)
            advice = f"Did you mean {close}?" if close else f"Commands: {', '.join(known)}."
            raise click.UsageError(f"No such command {name!r}. {advice}", ctx)
        return super().resolve_command(ctx, args)


def working_directory() -> Path:
    """The directory of this process.

    Raises:
        ConfigError: it was deleted.
    """
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise ConfigError(f"{GONE}: {ELSEWHERE}") from None


def require_writable(file: str, option: str) -> None:
    """Refuse a file that could not be written when all is done.

    Args:
        file: as typed; it is not touched.

    Raises:
        ConfigError: its folder does not exist, it is a directory, or may not be written.
    """
    path = working_directory() / file
    if not path.parent.is_dir():
        raise ConfigError(f"{file}: the folder does not exist", key=option)
    if path.is_dir():
        raise ConfigError(f"{file}: is a directory", key=option)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ConfigError(f"{file}: may not be written", key=option)


def is_named(key: str, name: str) -> bool:
    """Whether a word means a lease: its key, or its shard id."""
    return key == name or key.endswith(f":{name}")
