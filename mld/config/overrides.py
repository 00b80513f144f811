"""What stands above a properties file: settings from outside it, and variables of the environment.

``--set KEY=VALUE`` and the lines of ``KCL_MLD_SET`` replace lines of the file. ``--expand-env`` and
``KCL_MLD_EXPAND_ENV`` put variables into values: ``${NAME}`` and ``${NAME:-default}``, where the
default holds for an empty variable, too, as in a shell; ``$${`` is ``${`` itself. Values are
expanded once, after the file was parsed, so that what is put in is neither an escape nor a
variable. Java knows none of this. Whatever reads a properties file reads it through here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kcl_mld.config.findings import Finding, Severity
from kcl_mld.config.properties import Entry, last_of_each, parse
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import brief, mask

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SET_OPTION, EXPAND_OPTION = "--set", "--expand-env"
SET_VARIABLE, EXPAND_VARIABLE = "KCL_MLD_SET", "KCL_MLD_EXPAND_ENV"
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"", "false", "0", "no", "off"})
#: An escaped ``$``, a variable with or without a default, and any other ``$``.
_VARIABLE = re.compile(
    r"\$(?P<escaped>\$\{)"
    r"|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-[^}]*)?\}"
    r"|(?P<wrong>\$\{[^}]*\}?)"
)
#: As people write variables, for a shell.
_WRITTEN = re.compile(r"\$(?:\{([^}]*)\}?|([A-Za-z_][A-Za-z0-9_]*))")
#: Shorter contents are no secrets, and hiding them would make other words unreadable.
_LEAST_HIDDEN = 4


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line and the environment change in a properties file.

    Attributes:
        settings: replace the file's values of the same keys; a later one wins.
        expands: whether variables in values are replaced.
        environ: the variables; may hold secrets.
    """

    settings: tuple[Entry, ...] = ()
    expands: bool = False
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def entries(self, data: bytes, source: str) -> tuple[Entry, ...]:
        """The entries of a file as they count: without those that are replaced, and expanded.

        Args:
            source: the name of the file in an error.

        Raises:
            ConfigError: the grammar is broken, or a variable is missing; lists every such value
                with file, line and key.
        """
        settings = last_of_each(self.settings)
        kept = (entry for entry in parse(data, source) if entry.key not in settings)
        entries = (*kept, *settings.values())
        if not self.expands:
            return entries
        found: list[Finding] = []
        expanded = tuple(self._expanded(entry, source, found) for entry in entries)
        if found:
            raise ConfigError("\n".join(map(str, found)))
        return expanded

    def as_environment(self) -> dict[str, str]:
        """The variables by which another process reads a file like this one."""
        lines = (f"{entry.key}={entry.value}" for entry in self.settings)
        return {SET_VARIABLE: "\n".join(lines), EXPAND_VARIABLE: str(self.expands).lower()}

    def contents(self, entries: Iterable[Entry]) -> dict[str, str]:
        """The values that were put into these entries, and how they are shown: value -> ``${NAME}``."""
        names = {name: None for entry in entries for name in entry.variables}
        contents = {self.environ.get(name, ""): f"${{{name}}}" for name in names}
        return {text: shown for text, shown in contents.items() if len(text) >= _LEAST_HIDDEN}

    def _expanded(self, entry: Entry, source: str, found: list[Finding]) -> Entry:
        """The entry with its variables replaced; errors are added to ``found``."""
        names: list[str] = []

        def value_of(match: re.Match[str]) -> str:
            name, default = match["name"], match["default"]
            if match["escaped"]:
                return "${"
            if name is None:
                text = f"{brief(mask(match['wrong']))} is not ${{NAME}} or ${{NAME:-default}}"
                found.append(_finding(entry, source, text, "write $${ where ${ itself is meant"))
                return ""
            names.append(name)
            value = self.environ.get(name)
            if default is not None:
                return value or default.removeprefix(":-")
            if value is None:
                text = f"the environment has no variable {name}"
                advice = f"set it, or write ${{{name}:-default}}"
                found.append(_finding(entry, source, text, advice))
            return value or ""

        value = _VARIABLE.sub(value_of, entry.value)
        if value == entry.value and not names:
            return entry
        return replace(entry, value=value, written=entry.value, variables=tuple(names))


def _finding(entry: Entry, source: str, text: str, advice: str) -> Finding:
    where, line = (source, entry.line) if entry.origin is None else (entry.origin, None)
    return Finding(Severity.ERROR, where, line, mask(entry.key), text, advice)


def conceal(text: str, contents: Mapping[str, str]) -> str:
    """The text with values from the environment replaced by the names of the variables.

    Args:
        contents: from :meth:`Overrides.contents`.
    """
    for content in sorted(contents, key=len, reverse=True):
        for form in (content, repr(content)[1:-1]):
            text = text.replace(form, contents[content])
    return text


def first_variable(text: str) -> tuple[str, str] | None:
    """The first variable of a text as it is written, and how ``--expand-env`` wants it; or None."""
    match = _WRITTEN.search(text)
    if match is None:
        return None
    name = re.split(r"[^A-Za-z0-9_]", match[1] or match[2] or "", maxsplit=1)[0]
    return match[0], f"${{{name or 'NAME'}}}"


def how_to_expand(meant: str) -> str:
    """The advice for a variable that nothing replaces.

    Args:
        meant: as ``--expand-env`` wants it.
    """
    return f"write {meant} and give {EXPAND_OPTION} or {EXPAND_VARIABLE}=true"


def parse_setting(text: str, origin: str) -> Entry:
    """``KEY=VALUE`` as an entry. There are no escapes; blanks around both are dropped.

    Args:
        origin: its name in a message.

    Raises:
        ConfigError: it is of another form.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"{brief(mask(text))!r} is not KEY=VALUE", where=origin)
    if "\n" in value.strip():
        raise ConfigError(f"the value of {mask(key.strip())} has several lines", where=origin)
    return Entry(key.strip(), value.strip(), 0, origin=origin)


def overrides_of(
    environ: Mapping[str, str], typed: Iterable[Entry] = (), *, expands: bool = False
) -> Overrides:
    """The values of the environment, and above them those that were typed.

    Args:
        typed: settings of the command line, which win.
        expands: set by the command line.

    Raises:
        ConfigError: a variable is malformed.
    """
    lines = environ.get(SET_VARIABLE, "").splitlines()
    settings = [parse_setting(line, SET_VARIABLE) for line in lines if line.strip()]
    word = environ.get(EXPAND_VARIABLE, "").strip().lower()
    if word not in _TRUE | _FALSE:
        raise ConfigError(f"{brief(word)!r} is not true or false", where=EXPAND_VARIABLE)
    return Overrides((*settings, *typed), expands or word in _TRUE, environ)
