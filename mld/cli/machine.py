"""What this machine says about a file: whether its program starts here, whether its profiles exist.

The daemon and ``validate`` ask the same. The region is asked for by ``validate`` only: the daemon
meets it at once when it makes its clients.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from mld.adapters.children.program import StartPlace, examine_child
from mld.cli.arguments import ELSEWHERE, GONE, working_directory
from mld.cli.spark_children import for_spark
from mld.decide.children.child_environment import ChildFacts
from mld.errors import ConfigError
from mld.model.children.child_command import split_command
from mld.model.config.config import CREDENTIAL_KEYS
from mld.model.credentials import CredentialSource, parse_chain
from mld.model.findings import Finding, Problem, Severity
from mld.model.masking import mask
from mld.model.streams.stream_list import ListedStream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.model.config.build import Built
    from mld.model.config.settings import Setting


def on_this_machine(built: Built, file: str) -> Built:
    """The same with what would keep a daemon of this environment and working directory from work."""
    found = [
        *_program(built, file),
        *_profiles(built, file),
        *_packages(built, file),
    ]
    programs = list(_programs_of(built, built.setting("executableName")))
    return for_spark(built.with_findings(found), file, programs)


def on_any_machine(built: Built, file: str) -> Built:
    """The same with what would keep a daemon from work wherever it is.

    The arguments are those of :func:`on_this_machine`.
    """
    programs = list(_programs_of(built, built.setting("executableName")))
    return for_spark(built, file, programs, is_here=False)


def _program(built: Built, file: str) -> Iterator[Finding]:
    setting = built.setting("executableName")
    try:
        around = StartPlace(os.environ, working_directory())
    except ConfigError:
        yield _finding(file, setting.key.name, setting.line, _gone(built, setting))
        return
    told: set[tuple[str, Problem]] = set()
    for key, line, argv in _programs_of(built, setting):
        for problem in examine_child(argv, around) if argv and argv[0] else ():
            if (key, problem) not in told:
                told.add((key, problem))
                yield _finding(file, key, line, problem)


def _gone(built: Built, setting: Setting) -> Problem:
    """The working directory was deleted: only what is named by an absolute path starts there."""
    around = StartPlace(os.environ, Path())
    commands = [argv for _, _, argv in _programs_of(built, setting) if argv and argv[0]]
    problems = [problem for argv in commands for problem in examine_child(argv, around)]
    fails = any(problem.severity is Severity.ERROR for problem in problems)
    return Problem(Severity.ERROR if fails else Severity.WARNING, GONE, ELSEWHERE)


def _programs_of(
    built: Built, setting: Setting
) -> Iterator[tuple[str, int | None, tuple[str, ...]]]:
    """Key, line and command of every program, once for each stream that starts it."""
    command = split_command(setting.text or "")
    streams = None if built.config is None else built.config.streams
    if streams is None:
        yield setting.key.name, setting.line, command
        return
    # Streams that are found by a rule are not known here; one stands for all without options.
    found = () if streams.selection is None else (ListedStream("stream"),)
    for one in (*streams.streams, *found):
        option = streams.program_of(one.name)
        key, line = (option.key, option.line) if option else (setting.key.name, setting.line)
        own = split_command(option.text) if option else command
        yield key, line, _facts_of(one).command(own)


def _facts_of(listed: ListedStream) -> ChildFacts:
    """What a child of that stream learns, with placeholders for what the file does not say."""
    account, epoch = listed.account or "0" * 12, listed.epoch or 1
    identifier = f"{account}:{listed.name}:{epoch}"
    shard_id = "shardId-000000000000"
    return ChildFacts(
        shard_id=shard_id,
        lease_key=f"{identifier}:{shard_id}",
        stream_name=listed.name,
        application_name="app",
        worker_id="",
        pid=0,
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
    from mld.adapters.aws.credentials import profiles

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
