"""What a mistyped command was meant to be."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterable

_CUTOFF = 0.7


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a typed one resembles, upper and lower case alike; None = none does."""
    close = difflib.get_close_matches(word.lower().replace("_", "-"), known, n=1, cutoff=_CUTOFF)
    return close[0] if close else None


class SuggestingGroup(click.Group):
    """A group that names its commands, the nearest first, when there is none of a name."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, but for the words of the error."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            known = self.list_commands(ctx)
            close = nearest(name, known)
            advice = f"Did you mean {close}?" if close else f"Commands: {', '.join(known)}."
            raise click.UsageError(f"No such command {name!r}. {advice}", ctx)
        return super().resolve_command(ctx, args)
