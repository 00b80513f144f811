"""``executableName``: split as Java splits it, and what looks like something else than it is."""

from __future__ import annotations

import re

from mld.model.findings import Problem, Severity

_SPLIT_ONLY = "the text is split on spaces only, no shell reads it"
#: What a shell would act on, as a word or at the beginning of one.
_SHELL_WORD = re.compile(r"(?:&&|\|\|?|;|&|\d?>>?|\d?>&\d|<)\Z|(?:\$[({A-Za-z_]|`|~/)")


def split_command(text: str) -> tuple[str, ...]:
    """Program and arguments; empty for a blank text. Java splits at runs of U+0020 only."""
    return tuple(re.split(" +", text.rstrip(" "))) if text.strip(" ") else ()


def command_problems(text: str) -> tuple[Problem, ...]:
    """What a child would get that its author did not mean; nothing on this machine is looked at."""
    argv = split_command(text)
    if not argv or not argv[0]:
        return (
            Problem(
                Severity.ERROR,
                "names no program: no child could be started",
                "name the program first",
            ),
        )
    problems = []
    if "'" in text or '"' in text:
        problems.append(
            _warning(
                "quotes are passed to the program as they are: the text is split on spaces only",
                "use a script for arguments with spaces",
            )
        )
    if any(char in text for char in "\t\r\n\f\v\xa0"):
        problems.append(
            _warning(
                "contains a blank that is no space and becomes a part of a word",
                "put plain spaces between the words, and none at the end",
            )
        )
    shell = next((word for word in argv[1:] if _SHELL_WORD.match(word)), None)
    if shell is not None:
        problems.append(
            _warning(f"{shell!r} is passed to the program as it is: {_SPLIT_ONLY}", "use a script")
        )
    return tuple(problems)


def _warning(text: str, suggestion: str) -> Problem:
    return Problem(Severity.WARNING, text, suggestion)
