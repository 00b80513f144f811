"""``--set`` and ``--expand-env``: values of the command line, which override the file."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.config.overrides import (
    EXPAND_OPTION,
    EXPAND_VARIABLE,
    SET_OPTION,
    SET_VARIABLE,
    overrides_of,
    parse_setting,
)
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import mask, mask_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.config.overrides import Overrides

#: The key of a command line's context under which its values are kept.
_SETTINGS, _EXPANDS = f"{__name__}.settings", f"{__name__}.expands"


def _keep_settings(ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> None:
    """Keep what ``--set`` says for :func:`given_overrides`.

    Raises:
        ConfigError: it is not ``KEY=VALUE``, or a secret.
    """
    typed = tuple(parse_setting(text, SET_OPTION) for text in texts)
    for entry in typed:
        if mask_value(entry.key, entry.value) != entry.value:
            raise ConfigError(
                f"the value looks like a secret, and every user of this machine can read command"
                f" lines: write it in the file as ${{NAME}} and give {EXPAND_OPTION}, or put the"
                f" setting into {SET_VARIABLE}",
                key=mask(entry.key),
                where=SET_OPTION,
            )
    ctx.meta[_SETTINGS] = typed


def _keep_expanding(ctx: click.Context, _param: click.Parameter, expands: bool) -> None:
    ctx.meta[_EXPANDS] = expands


#: Options of every command that reads a properties file. The commands themselves don't get them:
#: what reads the file asks :func:`given_overrides`.
OVERRIDE_OPTIONS: dict[str, dict[str, Any]] = {
    SET_OPTION: {
        "multiple": True,
        "metavar": "KEY=VALUE",
        "expose_value": False,
        "callback": _keep_settings,
        "help": f"Set a property in place of the file; repeatable. Also: {SET_VARIABLE}.",
    },
    EXPAND_OPTION: {
        "is_flag": True,
        "expose_value": False,
        "callback": _keep_expanding,
        "help": f"Replace ${{NAME}} and ${{NAME:-default}} in values. Also: {EXPAND_VARIABLE}.",
    },
}


def given_overrides() -> Overrides:
    """The values of the running command line and of the environment that override the file.

    Raises:
        ConfigError: a variable is malformed.
    """
    ctx = click.get_current_context(silent=True)
    meta = {} if ctx is None else ctx.meta
    typed = meta.get(_SETTINGS, ())
    return overrides_of(os.environ, typed, expands=meta.get(_EXPANDS, False))


def typed_overrides() -> list[str]:
    """The options of the command line that runs, for another one."""
    meta = click.get_current_context().meta
    settings = (f"{entry.key}={entry.value}" for entry in meta[_SETTINGS])
    typed = [word for setting in settings for word in (SET_OPTION, setting)]
    return [*typed, *([EXPAND_OPTION] if meta[_EXPANDS] else [])]


def takes_overrides(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command; its own parameters stay the same."""
    for name, attributes in reversed(OVERRIDE_OPTIONS.items()):
        command = click.option(name, **attributes)(command)
    return command
