"""Verdicts of earlier runs that ship with the kit, to compare a new one with.

A baseline is the JSON that ``--json`` writes, with ``implementation``, ``version``, ``note`` and
``explained`` (item -> why the reference implementation fails it) added by hand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "baseline-"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True)
class Baseline:
    """What another implementation did.

    Attributes:
        name: heads its column, e.g. ``java-3.1.3``.
        verdicts: item -> verdict.
    """

    name: str
    verdicts: Mapping[str, str]


def names() -> tuple[str, ...]:
    """The baselines that ship with the kit, sorted."""
    found = (entry.name for entry in files(__package__).iterdir())
    return tuple(
        sorted(
            name.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            for name in found
            if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
        )
    )


def load(name: str) -> Baseline:
    """A baseline by its name, or the report of an earlier run by its path.

    Raises:
        ValueError: there is none of that name, or the file is no report; the text lists the names.
    """
    if name in names():
        text = files(__package__).joinpath(f"{_PREFIX}{name}{_SUFFIX}").read_text("utf-8")
        return _parse(name, text)
    try:
        return _parse(Path(name).stem, Path(name).read_text("utf-8"))
    except OSError as error:
        raise ValueError(_no_report(f"{name} can't be read: {error.strerror}")) from error
    except (ValueError, LookupError, TypeError) as error:
        why = f"{name} is not a report: JSON as --json writes it was expected ({error})"
        raise ValueError(_no_report(why)) from error


def _no_report(why: str) -> str:
    return f"{why}; give the path of a report, or one of: {', '.join(names())}"


def _parse(name: str, text: str) -> Baseline:
    findings = json.loads(text)["findings"]
    return Baseline(name, {finding["item"]: finding["verdict"] for finding in findings})
