"""A command line of ``java`` that starts a MultiLangDaemon, and what it asks of kcl-mld.

As the launcher of Java 17 reads it: options up to the main class, which may stand in ``@file``
and ``JDK_JAVA_OPTIONS``; options of the JVM also in ``JAVA_TOOL_OPTIONS`` before and in
``_JAVA_OPTIONS`` behind them. What follows the main class is the daemon's, ``@file`` included.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcl_mld.errors import ConfigError
from kcl_mld.ops.rules.java_properties import translate
from kcl_mld.ops.rules.java_words import words_of_file, words_of_variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

PROGRAM = "kcl-mld-java"
MAIN_CLASS = "software.amazon.kinesis.multilang.MultiLangDaemon"
#: Main classes of KCL 1.x, the second of the DynamoDB Streams adapter.
MAIN_CLASSES_1X = (
    "com.amazonaws.services.kinesis.multilang.MultiLangDaemon",
    "com.amazonaws.services.dynamodbv2.streamsadapter.StreamsMultiLangDaemon",
)
_CLASS_PATH = ("-cp", "-classpath", "--class-path")
#: Options whose value is the next word, or follows ``=`` where the option has two dashes.
_WITH_VALUE = (
    *_CLASS_PATH,
    "-p",
    "--module-path",
    "--upgrade-module-path",
    "--add-modules",
    "--add-exports",
    "--add-opens",
    "--add-reads",
    "--limit-modules",
    "--patch-module",
    "--enable-native-access",
)
_AGENTS = ("-javaagent:", "-agentlib:", "-agentpath:")
#: More options are in this file, which may set anything.
_OPTIONS_FILE = "-XX:VMOptionsFile="
_IGNORED = re.compile(
    r"-X.+|-(?:server|client|minimal|zero|dcevm|d32|d64|showversion)"
    r"|-(?:ea|da|enableassertions|disableassertions)(?::.*)?|-verbose(?::.*)?|-splash:.*"
    r"|-(?:esa|dsa|enablesystemassertions|disablesystemassertions)"
    r"|--(?:show-version|show-module-resolution|enable-preview)|--(?:illegal|finalization|sun)\S*=.*"
)


@dataclass(frozen=True, slots=True)
class JavaAnswer:
    """What to print instead of starting a daemon; exit code 0.

    Attributes:
        is_help: the usage, else the version.
        to_stdout: else to stderr, where Java prints it.
    """

    is_help: bool
    to_stdout: bool


#: Options that answer instead of starting anything, where Java does.
_ANSWERS = {
    "-version": JavaAnswer(is_help=False, to_stdout=False),
    "-fullversion": JavaAnswer(is_help=False, to_stdout=False),
    "--version": JavaAnswer(is_help=False, to_stdout=True),
    "--full-version": JavaAnswer(is_help=False, to_stdout=True),
    "-?": JavaAnswer(is_help=True, to_stdout=False),
    "-h": JavaAnswer(is_help=True, to_stdout=False),
    "-help": JavaAnswer(is_help=True, to_stdout=False),
    "-X": JavaAnswer(is_help=True, to_stdout=False),
    "--help": JavaAnswer(is_help=True, to_stdout=True),
    "--help-extra": JavaAnswer(is_help=True, to_stdout=True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaLaunch:
    """A daemon to start.

    Attributes:
        main_class: with dots.
        arguments: what follows the main class.
        class_path: folders and jars as written; an empty one is the working directory.
        is_1x: the main class is of KCL 1.x.
        variables: to be added to the environment.
        log_configuration: a logback file, where the arguments name none, or None.
        notes: for the log.
    """

    main_class: str
    arguments: tuple[str, ...]
    class_path: tuple[str, ...] = ("",)
    is_1x: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)
    log_configuration: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class _Options:
    """Options before the main class, as far as they are read."""

    properties: dict[str, str] = field(default_factory=dict)
    class_path: str | None = None
    agents: list[str] = field(default_factory=list)

    def take(self, word: str) -> bool:
        """Note an option of the JVM that is one word; False = it is none.

        Raises:
            ConfigError: it names a file of more options.
        """
        if word.startswith("-D"):
            name, _, value = word[2:].partition("=")
            self.properties[name] = value
        elif word.startswith(_AGENTS):
            self.agents.append(word.partition(":")[0])
        elif word.startswith(_OPTIONS_FILE):
            raise ConfigError(f"{_OPTIONS_FILE}… is not read: give its options themselves")
        else:
            return _IGNORED.fullmatch(word) is not None
        return True


def read_java_command(
    words: Iterable[str], environ: Mapping[str, str], read: Callable[[str], str]
) -> JavaLaunch | JavaAnswer:
    """What a command line asks for.

    Args:
        words: without the program's name.
        environ: variables with more options, ``CLASSPATH``, and those that options stand for.
        read: the text of an ``@file``; raises ConfigError.

    Raises:
        ConfigError: it starts something else, has an option that Java does not know, or one that
            can't be translated; the message says which and what to do.
    """
    options = _Options()
    _take_all(options, environ, "JAVA_TOOL_OPTIONS")
    launcher = words_of_variable(environ.get("JDK_JAVA_OPTIONS", ""), "JDK_JAVA_OPTIONS")
    if _read(options, deque(launcher), read) is not None:
        raise ConfigError("JDK_JAVA_OPTIONS may have options only, no main class and no -version")
    rest = deque(words)
    main_class = _read(options, rest, read)
    if isinstance(main_class, JavaAnswer):
        return main_class
    if main_class is None:
        raise ConfigError(f"No main class: {PROGRAM} [options] {MAIN_CLASS} FILE")
    _take_all(options, environ, "_JAVA_OPTIONS")
    _check_main_class(main_class)
    translated = translate(options.properties, environ)
    notes = [f"{agent} has no effect: there is no JVM" for agent in dict.fromkeys(options.agents)]
    notes += [f"-D{name} has no effect: there is no JVM" for name in translated.ignored]
    class_path = environ.get("CLASSPATH", "") if options.class_path is None else options.class_path
    return JavaLaunch(
        main_class=main_class,
        arguments=tuple(rest),
        class_path=tuple(class_path.split(":")),
        is_1x=main_class in MAIN_CLASSES_1X,
        variables=translated.variables,
        log_configuration=translated.log_configuration,
        notes=tuple(notes),
    )


def _take_all(options: _Options, environ: Mapping[str, str], variable: str) -> None:
    """Take the options of a variable of the JVM's own, which the launcher does not read."""
    for word in words_of_variable(environ.get(variable, ""), variable):
        name, equals, _value = word.partition("=")
        if not options.take(word) and not (equals and name in _WITH_VALUE):
            raise ConfigError(f"Unrecognized option: {_shown(word)} in {variable}")


def _read(
    options: _Options, words: deque[str], read: Callable[[str], str]
) -> str | JavaAnswer | None:
    """The main class or an answer, or None at the end; the words behind it are left in ``words``."""
    while words:
        word = words.popleft()
        if word.startswith("@") and not word.startswith("@@"):
            words.extendleft(reversed(words_of_file(read(word[1:]))))
        elif not word.startswith("-"):
            return word.removeprefix("@").replace("/", ".")
        elif (answer := _ANSWERS.get(word)) is not None:
            return answer
        elif not _takes_value(options, word, words) and not options.take(word):
            raise ConfigError(_why_not(word))
    return None


def _takes_value(options: _Options, word: str, words: deque[str]) -> bool:
    """Whether it is an option with a value, which may be the next word."""
    name, equals, value = word.partition("=")
    if name not in _WITH_VALUE or (equals and not name.startswith("--")):
        return False
    if not equals:
        if not words:
            raise ConfigError(f"{name} requires a value")
        value = words.popleft()
    if name in _CLASS_PATH:
        options.class_path = value
    return True


def _why_not(word: str) -> str:
    name = word.partition("=")[0]
    if name in {"-jar", "-m", "--module"}:
        return f"{name} is not supported: name the class, -cp … {MAIN_CLASS}"
    return f"Unrecognized option: {_shown(word)}"


def _shown(word: str) -> str:
    """An option without its value, which may be a secret."""
    name, equals, _value = word.partition("=")
    return f"{name}=…" if equals else name


def _check_main_class(name: str) -> None:
    if name != MAIN_CLASS and name not in MAIN_CLASSES_1X:
        raise ConfigError(
            f"{PROGRAM} is no Java: it runs {MAIN_CLASS} only, not {name}; start that with a JVM"
        )
