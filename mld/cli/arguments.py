"""What is typed: numbers that are numbers, between bounds, and what a mistyped command was meant to be.

What click lets through would fail later and elsewhere: ``nan`` and ``inf``, a whole number that no
float can hold, a time-out beyond what the system can wait for. So both bounds are required.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

from mld.model.findings import nearest
from mld.model.masking import brief

if TYPE_CHECKING:
    from click import Context, Parameter

#: How alike a mistyped word and what it was meant to be are at least.
CUTOFF = 0.7


class Finite(click.FloatRange):
    """A number between two bounds; ``nan``, ``inf`` and what is outside are errors of usage."""

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
