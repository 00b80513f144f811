"""The ``spark.*`` lines of a file: checked here, handed to the children as they are written.

The daemon does nothing with them itself. An unknown one may be meant for the program, so it is
handed on with a warning; a value that the Spark host would refuse is an error here, with its line,
rather than a child that fails on every worker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.config.findings import Problem, Severity, did_you_mean, nearest
from kcl_mld.config.spark.keys import (
    BY_NAME,
    DEFAULTS,
    FREE_PREFIXES,
    PREFIX,
    SINK_OPTIONS,
    check,
    is_known,
)
from kcl_mld.kernel.model.masking import mask_value

if TYPE_CHECKING:
    from kcl_mld.config.properties import Entry

__all__ = ["PREFIX", "SparkSetting", "problem_of", "spark_settings"]

_OPTIONS = FREE_PREFIXES[1]
#: Names of libpq that resemble those of pgJDBC.
_OF_LIBPQ = ("sslpassword", "sslcrl", "connect_timeout", "application_name", "passfile")


@dataclass(frozen=True, slots=True)
class SparkSetting:
    """One ``spark.*`` property.

    Attributes:
        text: its value, verbatim; None = absent and without a default.
        origin: where it is set, or ``default``.
        entry: what set it; None = nothing did.
    """

    name: str
    text: str | None
    origin: str
    entry: Entry | None = None

    @property
    def shown(self) -> str:
        """The value for people, secrets masked; empty for nothing.

        One with variables of the environment is shown as it is written.
        """
        written = None if self.entry is None else self.entry.written
        return mask_value(self.name, self.text or "" if written is None else written)


def problem_of(entry: Entry) -> Problem | None:
    """The error in a line; None = it is valid."""
    name = entry.key
    if not is_known(name):
        text = "not a property of the Spark host: handed to the child, which refuses it if it is kcl-mld-spark"
        return Problem(Severity.WARNING, text, _advice(name))
    fault = check(name, entry.value)
    if fault is None:
        return _near_option(name)
    key = BY_NAME.get(name)
    return Problem(Severity.ERROR, fault, "" if key is None else key.doc)


def _near_option(name: str) -> Problem | None:
    """A name below ``spark.sink.options.`` that resembles one of ours."""
    option = name.removeprefix(_OPTIONS)
    if option in (name, *SINK_OPTIONS, *_OF_LIBPQ):
        return None
    close = nearest(option, SINK_OPTIONS, 0.85)
    if close is None:
        return None
    text = "not an option that kcl-mld knows: jdbc hands it to libpq, which refuses what it does not know; the others drop it"
    return Problem(Severity.WARNING, text, did_you_mean(f"{_OPTIONS}{close}", name))


def _advice(name: str) -> str:
    close = nearest(name, BY_NAME, 0.75)
    if close is None:
        return f"what is meant for Spark itself goes below {FREE_PREFIXES[0]}"
    return did_you_mean(close, name)


def spark_settings(written: dict[str, SparkSetting]) -> tuple[SparkSetting, ...]:
    """All properties in the order of the table, then the others; nothing for a file without any.

    Args:
        written: the lines that count, by name.
    """
    if not written:
        return ()
    known = [
        written.get(name) or SparkSetting(name, text, "default") for name, text in DEFAULTS.items()
    ]
    return (*known, *(one for name, one in written.items() if name not in BY_NAME))
