"""What this machine says about a file: whether its program starts here, whether its profiles exist.

The daemon and ``validate`` ask the same. The region is asked for by ``validate`` only: the daemon
meets it at once when it makes its clients.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from mld.adapters.children.program import Surroundings, examine
from mld.errors import ConfigError
from mld.model.child_command import split_command
from mld.model.config_keys import CREDENTIAL_KEYS
from mld.model.credentials import CredentialSource, parse_chain
from mld.model.findings import Finding, Problem, Severity
from mld.model.masking import mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mld.model.config_build import Built
    from mld.model.settings import Setting


def on_this_machine(built: Built, file: str) -> Built:
    """The same with what would keep a daemon of this environment and working directory from work.

    Args:
        built: of a file.
        file: its path as typed.
    """
    return built.with_findings([*_program(built, file), *_profiles(built, file)])


def _program(built: Built, file: str) -> Iterator[Finding]:
    setting = built.setting("executableName")
    argv = split_command(setting.text or "")
    if not argv or not argv[0]:
        return
    try:
        around = Surroundings(os.environ, Path.cwd(), Path(file).parent)
    except FileNotFoundError:  # the working directory was deleted
        return
    for problem in examine(argv, around):
        yield _finding(file, setting, problem)


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
        yield _finding(file, named[0][0], Problem(Severity.ERROR, str(error)))
        return
    advice = f"known: {', '.join(sorted(known))}" if known else "the AWS files here name none"
    for setting, profile in named:
        if profile not in known:
            text = f"this machine has no profile {mask(profile)!r}"
            yield _finding(file, setting, Problem(Severity.WARNING, text, advice))


def _finding(file: str, setting: Setting, problem: Problem) -> Finding:
    text, suggestion = mask(problem.text), mask(problem.suggestion)
    return Finding(problem.severity, file, setting.line, setting.key.name, text, suggestion)
