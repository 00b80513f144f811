"""Numbers on the command line that are numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click import Context, Parameter


class Finite(click.FloatRange):
    """A number between bounds; ``nan`` and ``inf``, which click lets through, are errors of usage."""

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> float:
        """The number; a failure is an error of usage."""
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number
