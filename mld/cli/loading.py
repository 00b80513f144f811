"""The first steps of every command: set up logging, read the properties file, report findings."""

from __future__ import annotations

import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from kcl_mld.cli.arguments import CUTOFF, working_directory
from kcl_mld.cli.machine import on_this_machine
from kcl_mld.cli.overrides import given_overrides
from kcl_mld.config.build import Built, build_config
from kcl_mld.config.findings import Severity, nearest
from kcl_mld.errors import ConfigError
from kcl_mld.signals.adapters.output.logs import LogFormat, LogSettings, set_up

if TYPE_CHECKING:
    from kcl_mld.cli.run_options import RunOptions
    from kcl_mld.config.config import Config

_log = logging.getLogger("mld.config")
_LEVELS = {Severity.INFO: logging.INFO, Severity.WARNING: logging.WARNING}


def start_logging(options: RunOptions) -> None:
    """Set up logging by the command line: ``--log-level`` takes precedence over the file of ``-l``.

    Raises:
        ConfigError: the file of ``-l`` cannot be used.
    """
    level, notes, python = options.log_level, options.warnings, None
    levels: tuple[tuple[str, str], ...] = ()
    if options.log_configuration is not None:
        from kcl_mld.signals.adapters.output.log_configuration import read_log_configuration

        file = read_log_configuration(options.log_configuration)
        level, levels, python = level or file.level, file.levels, file.python
        notes += tuple(f"{options.log_configuration}: {text}" for text in file.warnings)
    chosen = LogFormat(options.log_format.lower()) if options.log_format else None
    set_up(LogSettings(format=chosen, level=(level or "INFO").upper(), levels=levels))
    if python is not None:
        from kcl_mld.signals.adapters.output.log_configuration import apply_python

        apply_python(python)
    for note in notes:
        _log.warning("%s", note)


def read_properties(path: str) -> bytes:
    """The bytes of a properties file; a relative path is relative to the working directory.

    Raises:
        ConfigError: it cannot be read; the text is the Java daemon's, unless the working directory
            was deleted.
    """
    prefix = "Error while reading properties file: "
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        if not Path(path).is_absolute():
            working_directory()
        raise ConfigError(
            f"{prefix}Unable to find property file in classpath, or file system: '{path}'"
            f"{_similar_file(path)}"
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{prefix}'{path}': {reason}") from None


def _similar_file(path: str) -> str:
    """A question that names a file beside the missing one, or nothing."""
    wanted = Path(path)
    try:
        there = [
            entry.name for entry in wanted.parent.iterdir() if entry.is_file() and entry != wanted
        ]
    except OSError:
        return ""
    close = nearest(wanted.name, there, CUTOFF)
    return "" if close is None else f". Did you mean '{wanted.with_name(close)}'?"


def build(path: str, *, worker_id: str, shown_as: str | None = None) -> Built:
    """Read and check a properties file without logging anything.

    Args:
        worker_id: for a file that names no worker.
        shown_as: what findings call the file; None = its path.

    Raises:
        ConfigError: unreadable, its syntax is broken, or the environment lacks a variable of it.
    """
    return build_config(
        read_properties(path),
        shown_as or path,
        worker_id=worker_id,
        host_name=socket.gethostname(),
        overrides=given_overrides(),
    )


def read_config(path: str) -> Config:
    """The configuration of a file, for a command that is no worker.

    Raises:
        ConfigError: unreadable or wrong; lists every error with file, line and key.
    """
    return build(path, worker_id="nobody").require()


def load_config(path: str, *, worker_id: str, shown_as: str | None = None) -> Config:
    """The configuration of a file for a daemon of this machine; findings are logged.

    Args:
        worker_id: for a file that names no worker.
        shown_as: what findings call the file; None = its path.

    Raises:
        ConfigError: unreadable or wrong, or its program cannot be started; lists every error with
            file, line and key.
    """
    built = build(path, worker_id=worker_id, shown_as=shown_as)
    built = on_this_machine(built, shown_as or path)
    for finding in built.findings:
        if finding.severity in _LEVELS:
            _log.log(_LEVELS[finding.severity], "%s", finding)
    return built.require()
