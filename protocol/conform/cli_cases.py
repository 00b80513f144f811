"""Cases for the daemon kit: the command line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.conform.daemon_run import properties_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.daemon import DaemonKit
    from protocol.conform.report import Finding

_MISSING: Final = "Unable to find property file in classpath, or file system: "
_MORE: Final = "For more information, visit: https://github.com/awslabs/amazon-kinesis-client"

#: item, arguments, Java's text, what kcl-mld's output must mention.
_COMMAND_LINES: Final = (
    ("CLI-01", (), "Properties file missing, please provide a properties file", "properties"),
    (
        "CLI-02",
        ("a", "b"),
        "Expected a single argument, but found multiple arguments.  Arguments: a, b",
        "b",
    ),
    ("CLI-05", ("-p",), "Expected a value after parameter -p", "-p"),
    ("CLI-06", ("-p", "a", "-p", "b"), "Can only specify option -p once.", "-p"),
    ("CLI-08", ("-p=x.properties",), f"{_MISSING}'-p=x.properties'", "x.properties"),
    ("CLI-09", ("nofile.properties",), f"{_MISSING}'nofile.properties'", "nofile.properties"),
)


def command_lines(kit: DaemonKit) -> Iterator[Finding]:
    """Arguments that are refused."""
    for number, (item_id, arguments, text, hint) in enumerate(_COMMAND_LINES):
        with kit.start_with(f"cli{number}", *arguments, files={}) as run:
            yield kit.refused(item_id, run, text, hint)
            if item_id == "CLI-09":
                last = (run.stderr.strip().splitlines() or [""])[-1]
                yield kit.decided(
                    "CLI-11",
                    as_java=last == _MORE,
                    row="error-output",
                    otherwise=last.strip(),
                    evidence=f"last line on stderr: {last}",
                )


def help_flag(kit: DaemonKit) -> Iterator[Finding]:
    """Java takes ``--help`` for a file."""
    with kit.start_with("clihelp", "--help", files={}) as run:
        code = run.exit_code(kit.limits.refuse_s)
        yield kit.decided(
            "CLI-07",
            as_java=code == 1 and f"{_MISSING}'--help'" in run.stderr,
            row="help",
            otherwise=code == 0 and "Usage" in run.stdout,
            evidence=f"exit {code}: {(run.output.strip().splitlines() or [''])[0]}",
        )


def log_configuration(kit: DaemonKit) -> Iterator[Finding]:
    """A log configuration that is not there."""
    name = "clilog"
    with kit.start_with(name, "-l", "nolog.xml", "app.properties", files=_valid(kit, name)) as run:
        text = "Error while loading log configuration: nolog.xml (No such file or directory)"
        yield kit.refused("CLI-10", run, text, "nolog.xml")


def _valid(kit: DaemonKit, name: str, file_name: str = "app.properties") -> dict[str, str]:
    """A valid properties file for runs with arguments of their own."""
    folder = kit.folder_of(name)
    values = kit.usual_properties(name, folder / "script.json")
    script = f'{{"record": "{folder}", "actions": {{}}}}'
    return {file_name: properties_text(values), "script.json": script}


def ways_to_name_the_file(kit: DaemonKit) -> Iterator[Finding]:
    """The flag, the flag over the positional argument, and the double dash."""
    for item_id, name, arguments in (
        ("CLI-03", "clip", ("-p", "app.properties")),
        ("CLI-04", "cliboth", ("-p", "app.properties", "other.properties")),
        ("CLI-12", "clidash", ("--", "app.properties")),
    ):
        kit.cloud.create_stream(name, 1)
        files = _valid(kit, name) | {"other.properties": "executableName = /nonexistent\n"}
        with kit.start_with(name, *arguments, files=files) as run:
            yield kit.started(item_id, run, f"with {' '.join(arguments)}")


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    command_lines,
    help_flag,
    log_configuration,
    ways_to_name_the_file,
)
