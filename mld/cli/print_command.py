"""``kcl-mld print-command``: a stand-in for kclpy's ``amazon_kclpy_helper.py``.

Start scripts say ``$(amazon_kclpy_helper.py --print_command --java … --properties …)``; with this
command in its place they start kcl-mld. Options about Java are accepted and not needed.
"""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

import click

from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.overrides import typed_overrides


@click.command("print-command")
@click.option("--print_command", "--print-command", is_flag=True, help="The default.")
@click.option(
    "--print_classpath",
    "--print-classpath",
    is_flag=True,
    help="Accepted; there is no class path.",
)
@click.option("-j", "--java", metavar="PATH", help="Accepted and ignored.")
@takes_properties_file("--props", "--prop", is_required=False)
@click.option(
    "--sample", "--sample-props", "--use-sample-properties", is_flag=True, help="Not supported."
)
@click.option(
    "-c", "--classpath", "--path", multiple=True, metavar="PATH", help="Accepted and ignored."
)
@click.option("-l", "--log-configuration", metavar="FILE", help="Passed to the daemon.")
@click.pass_context
def print_command(
    ctx: click.Context,
    *,
    print_command: bool,
    print_classpath: bool,
    java: str | None,
    file: str | None,
    sample: bool,
    classpath: tuple[str, ...],
    log_configuration: str | None,
) -> int:
    """Print the command that runs the daemon. Options are those of kclpy's launcher."""
    if print_classpath:
        click.echo("no class path is needed: kcl-mld runs without Java", err=True)
        if not print_command:
            return 0
    if java or classpath:
        click.echo("--java and --classpath are not needed: kcl-mld runs without Java", err=True)
    if sample:
        raise click.UsageError("there is no installed sample: name a file with --properties", ctx)
    if not file:
        raise click.UsageError("Must provide arguments: --properties", ctx)
    command = [*_program(), "--properties", file, *typed_overrides()]
    if log_configuration:
        command += ["--log-configuration", log_configuration]
    click.echo(shlex.join(command))
    return 0


def _program() -> list[str]:
    """How to call this program: by name where the PATH finds it, else by where it is."""
    if shutil.which("kcl-mld"):
        return ["kcl-mld"]
    script = Path(sys.executable).with_name("kcl-mld")
    return [str(script)] if script.exists() else [sys.executable, "-P", "-m", "kcl_mld"]
