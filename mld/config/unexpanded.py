"""``$NAME`` and ``${NAME}`` in values that can't have them: people expect a shell, and there is none.

Java takes the characters as they are, and meets a table or a region of that name on AWS.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kcl_mld.config.findings import Severity
from kcl_mld.config.keys import Kind
from kcl_mld.config.overrides import SET_OPTION, first_variable, how_to_expand

if TYPE_CHECKING:
    from kcl_mld.config.settings import Setting, Settings

_KINDS = frozenset({Kind.REGION, Kind.URL, Kind.CREDENTIALS})
#: Of other kinds; AWS has no name with a dollar sign among them.
_NAMES = frozenset(
    {
        "applicationName",
        "streamName",
        "streamArn",
        "streams",
        "tableName",
        "workerMetricsTableName",
        "coordinatorStateTableName",
        "fanoutConfig.consumerName",
        "fanoutConfig.consumerArn",
    }
)
#: Key -> another one that is judged by its value.
_FOLLOWS = {"streamArn": "streamName"}


def check_unexpanded(settings: Settings) -> None:
    """Report values that a variable makes wrong, and nothing else about them."""
    for setting in list(settings.by_name.values()):
        key = setting.key
        if setting.text is None or not (key.kind in _KINDS or key.name in _NAMES):
            continue
        found = first_variable(_host(setting.text) if key.kind is Kind.URL else setting.text)
        if found is None:
            continue
        settings.findings[:] = [
            one
            for one in settings.findings
            if one.severity is not Severity.ERROR or not _is_about(one.key, one.line, setting)
        ]
        written, meant = found
        settings.error(
            key.name,
            f"{written} stays as it is: a properties file has no variables, in Java neither",
            f"{how_to_expand(meant)}, or give {SET_OPTION} {key.name}=…",
        )


def _host(url: str) -> str:
    """The parts of a URL that have no dollar sign: a password and a path may have one."""
    scheme, _, rest = url.partition("//")
    return scheme + re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]


def _is_about(key: str | None, line: int | None, setting: Setting) -> bool:
    name = setting.key.name
    is_named = key in {name, _FOLLOWS.get(name)}
    return is_named or (line is not None and line == setting.line)
