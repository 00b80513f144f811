"""Cases for the daemon kit: the syntax of properties files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.conform.report import Finding, failed, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.daemon import DaemonKit


def grammar(kit: DaemonKit) -> Iterator[Finding]:
    """The syntax of properties files, seen in the names that the daemon uses."""
    cases: tuple[tuple[str, bytes], ...] = (
        ("PROP-01", b"streamName:@\n"),
        ("PROP-01", b"streamName @\n"),
        ("PROP-03", b"streamName = \\\n    @\n"),
        ("PROP-05", b"streamName = @\nx=\\u00e9\n"),
        ("PROP-06", b"streamName = @\nx=\xc3\xa9\n"),
        ("PROP-07", b"streamName = wrong\nstreamName = @\n"),
        ("PROP-08", b"# comment \\\nstreamName = @\n"),
        ("PROP-10", b"streamName = @\rfooBar = 1\r"),
    )
    for number, (item_id, text) in enumerate(cases):
        name = f"prop{number}"
        kit.cloud.create_stream(name, 1)
        raw = text.replace(b"@", name.encode())
        with kit.start(name, {"streamName": None}, raw=raw) as run:
            yield kit.started(item_id, run, repr(text)[1:])
    with kit.start("propbad", raw=b"x=\\u12\n") as run:
        yield kit.refused("PROP-05", run, "Malformed \\uxxxx encoding.", "\\u")


def values_in_the_childs_arguments(kit: DaemonKit) -> Iterator[Finding]:
    """What becomes of backslashes and number signs, seen in the child's arguments."""
    name = "propargs"
    kit.cloud.create_stream(name, 1)
    folder = kit.folder_of(name)
    command = kit.usual_properties(name, folder / "script.json")["executableName"]
    raw = f"executableName = {command} C:\\tools\\x  # no --comment \n".encode()
    with kit.start(name, {"executableName": None}, raw=raw) as run:
        started = run.wait_for(lambda found: found.children(), kit.limits.start_s)
        if not started:
            yield failed("PROP-04", "no child")
            return
        argv = run.children()[0][0].what["argv"][2:]
        evidence = f"arguments {argv}"
        yield judged("PROP-04", argv[:1] == ["C:\toolsx"], evidence)
        yield judged("PROP-09", argv[1:4] == ["#", "no", "--comment"], evidence)
        yield judged("LIFE-01", argv[-1] == "--comment", evidence)
        yield judged("LIFE-13", run.children()[0][0].what["cwd"] == str(run.folder), "cwd kept")


def application_name_keeps_blanks(kit: DaemonKit) -> Iterator[Finding]:
    """Trailing blanks belong to the value; a table of that name cannot be made."""
    name = "propblank"
    kit.cloud.create_stream(name, 1)
    with kit.start(name, {"applicationName": f"{name}  "}) as run:
        seen = run.wait_for(lambda found: f"{name}  " in found.output, kit.limits.start_s)
        run.exit_code(kit.limits.refuse_s)
        evidence = "the name appears with its blanks" if seen else "the name does not appear"
        yield judged("PROP-02", seen and not run.actions(), evidence)


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    grammar,
    values_in_the_childs_arguments,
    application_name_keeps_blanks,
)
