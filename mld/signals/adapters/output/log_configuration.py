"""Files for ``-l``: a logback XML translated as far as it maps, or a Python logging dictConfig.

Of logback the levels of the root and of loggers are taken; appenders, patterns and filters have
no counterpart, since kcl-mld always writes to stderr. What is not taken is reported.
"""

from __future__ import annotations

import codecs
import json
import logging.config
import os
import re

# The operator's own file, and expat refuses entity bombs by itself.
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kcl_mld.errors import ConfigError
from kcl_mld.signals.adapters.output.background_output import unblock_handlers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEVELS = {
    "ALL": "DEBUG",
    "TRACE": "DEBUG",
    "DEBUG": "DEBUG",
    "INFO": "INFO",
    "WARN": "WARNING",
    "ERROR": "ERROR",
    "OFF": "CRITICAL",
}
#: Prefixes of Java loggers and ours that say the same, the longest first.
_LOGGERS = (
    ("software.amazon.kinesis.multilang", "mld"),
    ("software.amazon.kinesis.leases", "mld.leases", "mld.shards"),
    ("software.amazon.kinesis.coordinator", "mld.fleet", "mld.app"),
    ("software.amazon.kinesis.lifecycle", "mld.children"),
    ("software.amazon.kinesis.retrieval", "mld.retrieval"),
    ("software.amazon.kinesis.metrics", "mld.observe"),
    ("software.amazon.kinesis", "mld"),
    ("com.amazonaws.services.kinesis", "mld"),
    ("software.amazon.awssdk", "botocore"),
    ("com.amazonaws", "botocore"),
    ("org.apache.http", "urllib3"),
    ("io.netty", "urllib3"),
)
#: Loggers of ours, by domain.
_OURS = frozenset(
    [
        "aws",
        "app",
        "child",
        "children",
        "cli",
        "config",
        "fleet",
        "kernel",
        "leases",
        "observe",
        "retrieval",
        "shards",
        "signals",
        "spark",
        "streams",
    ]
)
#: What stood before the domain in names of earlier versions, and domains that had another name.
_FORMER = re.compile(r"mld\.(?:services|adapters)(?:\.|$)")
_RENAMED = {"consuming": "children", "scheduler": "app"}
_VARIABLE = re.compile(r"\$\{([^}:]+)(?::-([^}]*))?\}")

#: What a file has to be.
_FORM = 'a logback XML, or JSON with "version": 1 for Python\'s logging, is expected'


@dataclass(frozen=True, slots=True)
class LogConfiguration:
    """What a file for ``-l`` says.

    Attributes:
        level: of the root logger, or None.
        levels: our logger name -> level, in file order.
        python: a dictConfig to apply instead, or None.
        warnings: what was not taken, a sentence each.
    """

    level: str | None = None
    levels: tuple[tuple[str, str], ...] = ()
    python: dict[str, Any] | None = None
    warnings: tuple[str, ...] = ()


def read_log_configuration(path: str) -> LogConfiguration:
    """Read a logback XML, or JSON for ``logging.config.dictConfig``.

    Raises:
        ConfigError: unreadable, or neither of the two; the text begins as the Java daemon's.
    """
    prefix = "Error while loading log configuration: "
    try:
        data = Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)
    except FileNotFoundError:
        raise ConfigError(f"{prefix}{path} (No such file or directory)") from None
    except OSError as error:
        raise ConfigError(f"{prefix}{path} ({error.strerror})") from None
    try:
        if data.lstrip()[:1] == b"{":
            return _from_json(data)
        return _from_logback(ET.fromstring(data), os.environ)  # noqa: S314
    except (ET.ParseError, ValueError) as error:
        raise ConfigError(f"{prefix}{path}: {error}; {_FORM}") from None


def apply_python(configuration: dict[str, Any]) -> None:
    """Hand a dictConfig to the logging module; its handlers get threads, so that none blocks.

    Raises:
        ConfigError: the logging module refuses it.
    """
    try:
        logging.config.dictConfig(configuration)
    except (ValueError, TypeError, AttributeError, ImportError) as error:
        why = f"{error}: {error.__cause__}" if error.__cause__ else str(error)
        raise ConfigError(f"Error while loading log configuration: {why}") from None
    unblock_handlers()


def _from_json(data: bytes) -> LogConfiguration:
    configuration = json.loads(data)
    if configuration.get("version") != 1:
        raise ValueError('a Python logging configuration needs "version": 1')
    configuration.setdefault("disable_existing_loggers", False)
    if isinstance(loggers := configuration.get("loggers"), dict):
        configuration["loggers"] = {
            present: one for name, one in loggers.items() for present in _loggers(name) or [name]
        }
    return LogConfiguration(python=configuration)


def _from_logback(root: ET.Element, environ: Mapping[str, str]) -> LogConfiguration:
    if root.tag != "configuration":
        raise ValueError(f"<{root.tag}> is not the <configuration> of a logback file")
    properties = dict(environ)
    warnings: list[str] = []
    levels: dict[str, str] = {}
    level: str | None = None
    for element in root:
        name = _fill(element.get("name", ""), properties)
        if element.tag in {"property", "variable"}:
            properties[name] = _fill(element.get("value", ""), properties)
        elif element.tag == "root":
            level = _level("root", element, properties, warnings) or level
        elif element.tag == "logger":
            ours = _loggers(name)
            chosen = _level(name, element, properties, warnings)
            if not ours:
                warnings.append(f"logger {name} has no counterpart and is left out")
            elif chosen is not None:
                levels |= dict.fromkeys(ours, chosen)
        elif element.tag == "appender":
            warnings.append(f"appender {name} is left out: kcl-mld logs to stderr")
        else:
            warnings.append(f"<{element.tag}> is left out")
    return LogConfiguration(level, tuple(levels.items()), None, tuple(warnings))


def _level(
    name: str, element: ET.Element, properties: Mapping[str, str], warnings: list[str]
) -> str | None:
    inner = element.find("level")
    nested = "" if inner is None else inner.get("value", "")
    word = _fill(element.get("level") or nested, properties).strip().upper()
    if not word or word in {"INHERITED", "NULL"}:
        return None
    if word not in _LEVELS:
        # logback reads an unknown word as DEBUG.
        warnings.append(f"level {word} of {name} is unknown: DEBUG, as logback does")
    return _LEVELS.get(word, "DEBUG")


def _loggers(name: str) -> Sequence[str]:
    """What logs here what a logger of Java or of an earlier version logs there."""
    logger = name.removeprefix("kcl_")  # of a module
    if logger == "mld" or logger.startswith("mld."):
        return [_present(logger)]
    for java, *ours in _LOGGERS:
        if name == java or name.startswith(f"{java}."):
            return ours
    return []


def _present(name: str) -> str:
    """A logger of ours; names of modules and those of earlier versions mean their domain's."""
    former = _FORMER.match(name)
    domain = (name[former.end() :] if former else name[4:]).partition(".")[0]
    if former and domain == "child":
        domain = "children"  # mld.child is what children print
    domain = _RENAMED.get(domain, domain)
    return f"mld.{domain}" if domain in _OURS else "mld" if former else name


def _fill(text: str, properties: Mapping[str, str]) -> str:
    return _VARIABLE.sub(lambda m: properties.get(m[1], m[2] if m[2] is not None else m[0]), text)
