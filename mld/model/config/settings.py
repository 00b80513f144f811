"""From the entries of a file to one setting per property, each with its origin.

Nothing is decided here beyond the single line: names are resolved, texts converted, doubles
reported, defaults filled in. What several settings mean together is ``mld.model.config.build``'s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mld.model.config.keys import CREDENTIAL_KEYS, KEYS, Effect, Key
from mld.model.config.names import resolve
from mld.model.config.properties import Entry, last_of_each
from mld.model.config.values import Value, convert
from mld.model.findings import Finding, Problem, Severity
from mld.model.masking import mask, mask_value
from mld.model.spark.settings import PREFIX, SparkSetting, problem_of
from mld.model.streams.stream_list import OPTION_PREFIX, StreamOption, parse_option

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_ORIGIN = "default"


@dataclass(frozen=True, slots=True)
class Setting:
    """One property with its effective value.

    Attributes:
        key: its row in the table.
        value: in the unit of the file; None = nothing.
        origin: ``file:line``, ``default``, or how it was derived.
        text: as written; None when absent.
        line: where it is written, else None.
        is_set: True when the Java daemon would take the value over from the file.
    """

    key: Key
    value: Value
    origin: str = DEFAULT_ORIGIN
    text: str | None = None
    line: int | None = None
    is_set: bool = False

    @property
    def shown(self) -> str:
        """The value for people, secrets masked; empty for nothing."""
        if self.value is None:
            return ""
        if isinstance(self.value, bool):
            return str(self.value).lower()
        if isinstance(self.value, tuple):
            pairs = (item if isinstance(item, str) else "=".join(item) for item in self.value)
            return mask_value(self.key.name, ", ".join(pairs))
        return mask_value(self.key.name, str(self.value))


@dataclass(slots=True)
class Settings:
    """All properties of one file, and what there is to say about them.

    Attributes:
        source: file as the user named it.
        by_name: canonical name -> setting; complete: absent ones hold their default.
        spark: name -> line that counts, of the ``spark.*`` properties.
        stream_options: the ``stream.<name>.*`` lines that count, in file order.
        findings: in file order.
    """

    source: str
    by_name: dict[str, Setting] = field(default_factory=dict)
    spark: dict[str, SparkSetting] = field(default_factory=dict)
    stream_options: list[StreamOption] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def __getitem__(self, name: str) -> Setting:
        return self.by_name[name]

    def value(self, name: str) -> Value:
        """Effective value of a property, in the unit of the file."""
        return self.by_name[name].value

    def text(self, name: str) -> str | None:
        """Effective value of a textual property."""
        value = self.by_name[name].value
        return None if value is None else str(value)

    def number(self, name: str) -> int:
        """Effective value of a number that has a default."""
        value = self.by_name[name].value
        assert isinstance(value, int), f"{name} has a whole number as its default"
        return value

    def seconds(self, name: str) -> float:
        """Effective value of a number of milliseconds that has a default."""
        return self.number(name) / 1000

    def flag(self, name: str) -> bool:
        """Effective value of a boolean."""
        return self.by_name[name].value is True

    def error(self, name: str, text: str, suggestion: str = "") -> None:
        """Report that the daemon must not start."""
        self.report(name, Problem(Severity.ERROR, text, suggestion))

    def warn(self, name: str, text: str, suggestion: str = "") -> None:
        """Report something that is not what it seems."""
        self.report(name, Problem(Severity.WARNING, text, suggestion))

    def report(self, name: str, problem: Problem, line: int | None = None) -> None:
        """Report a problem at the line of the setting, or at ``line``."""
        known = self.by_name.get(name)
        at = line if line is not None else known.line if known else None
        text, suggestion = mask(problem.text), mask(problem.suggestion)
        finding = Finding(problem.severity, self.source, at, name, text, suggestion)
        self.findings.append(finding)

    def derive(self, name: str, value: Value, origin: str) -> None:
        """Fill in a value that follows from others."""
        self.by_name[name] = Setting(KEYS[name], value, origin)


def read_settings(entries: Sequence[Entry], source: str) -> Settings:
    """Resolve and convert all entries, in file order; a later line wins over an earlier one.

    Args:
        entries: from ``mld.model.config.properties.parse``.
        source: file as the user named it.
    """
    settings = Settings(source)
    counting = last_of_each(tuple(entries))
    for entry in entries:
        if counting[entry.key] is not entry:
            overridden = Problem(
                Severity.WARNING,
                f"overridden by line {counting[entry.key].line}",
                "keep one of the lines",
            )
            settings.report(mask(entry.key), overridden, entry.line)
            continue
        _report_eaten(settings, entry)
        if "\0" in entry.value:
            text = "holds the character NUL, which no name, path or argument may have"
            nul = Problem(Severity.ERROR, text, "correct the escape \\u0000")
            settings.report(mask(entry.key), nul, entry.line)
            # Only to judge the rest of the value: the file is refused.
            entry = replace(entry, value=entry.value.replace("\0", ""))  # noqa: PLW2901
        if entry.key.startswith(PREFIX):
            _read_spark(settings, entry)
        elif entry.key.startswith(OPTION_PREFIX):
            _read_stream_option(settings, entry)
        else:
            _read_entry(settings, entry)
    for name, key in KEYS.items():
        settings.by_name.setdefault(name, Setting(key, key.default))
    return settings


def _read_entry(settings: Settings, entry: Entry) -> None:
    shown_name = mask(entry.key)
    key, complaint = resolve(entry.key)
    if complaint is not None:
        settings.report(shown_name, complaint, entry.line)
    if key is None:
        return
    _report_mojibake(settings, entry)
    _report_comment(settings, entry)
    earlier = settings.by_name.get(key.name)
    if earlier is not None:
        _report_second_name(settings, earlier, entry)
    converted = convert(key, entry.value)
    for problem in converted.problems:
        settings.report(shown_name, problem, entry.line)
    place = f"{settings.source}:{entry.line}"
    is_set = converted.value is not None
    settings.by_name[key.name] = Setting(
        key,
        converted.value if is_set else key.default,
        place if is_set else f"{DEFAULT_ORIGIN} ({place} unset)",
        entry.value,
        entry.line,
        is_set=is_set,
    )
    _report_effect(settings, settings.by_name[key.name], shown_name)


def _read_spark(settings: Settings, entry: Entry) -> None:
    _report_mojibake(settings, entry)
    if (problem := problem_of(entry)) is not None:
        settings.report(mask(entry.key), problem, entry.line)
    origin = f"{settings.source}:{entry.line}"
    settings.spark[entry.key] = SparkSetting(entry.key, entry.value, origin)


def _read_stream_option(settings: Settings, entry: Entry) -> None:
    _report_mojibake(settings, entry)
    _report_comment(settings, entry)
    option, problem = parse_option(entry.key, entry.value, entry.line)
    if problem is not None:
        settings.report(mask(entry.key), problem, entry.line)
    if option is not None and problem is None:
        settings.stream_options.append(option)


def _report_second_name(settings: Settings, earlier: Setting, entry: Entry) -> None:
    name = earlier.key.name
    if name in CREDENTIAL_KEYS:
        # BuilderDynaBean accepts a class once.
        text = f"given twice, first in line {earlier.line}; Java refuses to start as well"
        settings.report(entry.key, Problem(Severity.ERROR, text, "keep one"), entry.line)
    else:
        text = f"overridden by {entry.key} in line {entry.line}, which is the same property"
        settings.report(name, Problem(Severity.WARNING, text, "keep one"), earlier.line)


def _report_mojibake(settings: Settings, entry: Entry) -> None:
    """UTF-8 in the file arrives as other characters, in Java too."""
    try:
        meant = entry.value.encode("iso-8859-1").decode("utf-8")
    except UnicodeError:
        return
    if meant != entry.value:
        escaped = meant.encode("ascii", "backslashreplace").decode()
        text = "the file is read as ISO-8859-1, as in Java, so these UTF-8 characters change"
        advice = f"write {mask_value(entry.key, escaped)}"
        settings.report(entry.key, Problem(Severity.WARNING, text, advice), entry.line)


def _report_eaten(settings: Settings, entry: Entry) -> None:
    """A backslash escapes what follows, in Java too: of a ``d`` behind one only the letter is left."""
    if entry.meant is not None:
        text = (
            "a backslash is an escape in properties files, so the value is"
            f" {mask_value(entry.key, entry.value)!r}"
        )
        advice = f"write {mask_value(entry.key, entry.meant)}"
        settings.report(mask(entry.key), Problem(Severity.WARNING, text, advice), entry.line)


def _report_comment(settings: Settings, entry: Entry) -> None:
    """Comments have lines of their own; this one is a part of the value."""
    if re.search(r"\s#", entry.value):
        text = "what follows # is part of the value, not a comment, as in Java"
        advice = "put the comment in a line of its own"
        settings.report(entry.key, Problem(Severity.WARNING, text, advice), entry.line)


def _report_effect(settings: Settings, setting: Setting, name: str) -> None:
    key = setting.key
    if key.effect is Effect.UNNEEDED:
        settings.report(name, Problem(Severity.INFO, f"not needed: {key.doc}"), setting.line)
    elif key.effect is Effect.NO_EFFECT:
        text = f"has no effect in the Java daemon either: {key.doc}"
        problem = Problem(Severity.WARNING, text, "remove the line")
        settings.report(name, problem, setting.line)
    elif key.own and name == key.name:
        text = "a property of kcl-mld; the Java daemon ignores it"
        settings.report(name, Problem(Severity.INFO, text), setting.line)
