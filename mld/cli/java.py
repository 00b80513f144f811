"""``kcl-mld-java``: what launchers of the MultiLangDaemon start in place of ``java``.

kclpy's helper and npm's bootstrap take it by ``--java PATH``; ``--home DIR`` makes a folder for
those that take a ``JAVA_HOME``. Exit codes are those of the daemon.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NoReturn

import click

from kcl_mld import __version__
from kcl_mld.cli import dispatch, run_program
from kcl_mld.cli.options import on_class_path
from kcl_mld.errors import ConfigError
from kcl_mld.ops.rules.java_command import (
    MAIN_CLASS,
    PROGRAM,
    JavaAnswer,
    JavaLaunch,
    read_java_command,
)

_VERSION = f"{PROGRAM} {__version__}: starts kcl-mld in place of a JVM; it is no Java"
_USAGE = f"""\
Usage: {PROGRAM} [options of java] {MAIN_CLASS} [-p] FILE [-l FILE]
       {PROGRAM} --home DIR

Runs kcl-mld for launchers that start the MultiLangDaemon with a java command.

  --home DIR  Make DIR, or complete it, so that it can be used as JAVA_HOME; print it.
  -version    Print the version.
  -help       Print this."""


def main() -> NoReturn:
    """Entry point of ``kcl-mld-java``."""
    run_program(lambda: stand_in(sys.argv[1:]))


def stand_in(words: list[str]) -> int:
    """Do what a command line of ``java`` asks for; returns the exit code."""
    try:
        if words[:1] == ["--home"]:
            click.echo(make_home(words[1:], Path(sys.argv[0])))
            return 0
        asked = read_java_command(words, os.environ, _read)
    except ConfigError as error:
        click.echo("\n".join(f"{PROGRAM}: {line}" for line in str(error).splitlines()), err=True)
        return error.exit_code
    if isinstance(asked, JavaAnswer):
        click.echo(_USAGE if asked.is_help else _VERSION, err=not asked.to_stdout)
        return 0
    _forget_home()
    os.environ.update(asked.variables)
    return dispatch(["run", *_log_configuration(asked), *asked.arguments], asked)


def _log_configuration(launch: JavaLaunch) -> list[str]:
    """The option for a logback file; one that follows wins."""
    name = launch.log_configuration
    return [] if name is None else [f"--log-configuration={on_class_path(name, launch.class_path)}"]


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "surrogateescape")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"could not open `{path}': {reason}") from None


def _forget_home() -> None:
    """Children that need a Java must not find this program by ``JAVA_HOME``."""
    home = os.environ.get("JAVA_HOME")
    if home and _is_ours(Path(home, "bin", "java")):
        del os.environ["JAVA_HOME"]


def _is_ours(program: Path) -> bool:
    """Whether a program is this one, perhaps of another environment."""
    real = program.resolve()
    return real.name == PROGRAM or real == Path(sys.argv[0]).resolve()


def make_home(words: list[str], program: Path) -> Path:
    """Make a folder whose ``bin/java`` is this program.

    Args:
        words: the folder, which may be there already.

    Returns:
        Its absolute path.

    Raises:
        ConfigError: not one folder, it can't be written, or its ``bin/java`` is another program.
    """
    if len(words) != 1 or not words[0]:
        raise ConfigError("--home takes one folder")
    home = Path(words[0]).absolute()
    java = home / "bin" / "java"
    if os.path.lexists(java) and java.resolve().name != PROGRAM:
        raise ConfigError(f"{java} is another program: choose another folder")
    try:
        java.parent.mkdir(parents=True, exist_ok=True)
        java.unlink(missing_ok=True)
        java.symlink_to(program.resolve())
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from None
    return home
