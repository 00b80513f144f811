"""How properties name a database of PostgreSQL: a URL of pgJDBC, and libpq's parameters. Pure.

Texts of errors hold no values: libpq quotes what it can't read, with the password.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

_POSTGRES = "jdbc:postgresql:"
#: Names of pgJDBC for what libpq has another name for.
_NAMES = {
    "ApplicationName": "application_name",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "targetServerType": "target_session_attrs",
}
#: Which servers may be chosen for a sink, which writes, as libpq names them.
_TARGETS = {
    "primary": "read-write",
    "master": "read-write",
    "read-write": "read-write",
    "any": "any",
}
#: What libpq knows, and the sink decides.
_OURS = ("client_encoding", "dbname", "replication")
#: Parameters that libpq checks only when it connects; psycopg takes an error for an outage.
_WHOLE = (
    "connect_timeout",
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
)
_WHOLE_NUMBER = re.compile(r"-?\d{1,9}", re.ASCII)
#: What libpq wants a backslash before, in ``options``.
_BLANK = re.compile(r"[\s\\]")
_HAS_WRONG = "has a parameter that can't be right, here or in spark.sink.options"
#: A host with a port; an address of IPv6 stands in brackets.
_PORT = re.compile(r"(?:\[[^]]*\]|[^][:]*):([^][:]*)")


def libpq_connection(url: str, options: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """What a URL and options mean to libpq: place behind ``postgresql:``, and parameters.

    Args:
        url: ``jdbc:postgresql://host:port/database?parameter=value``.
        options: ``spark.sink.options.*``; ``user`` and ``password`` count before those of the URL,
            other parameters behind them.

    Raises:
        ValueError: they can't be right; the text goes behind ``spark.sink.url``.
    """
    place, query = _url_parts(url)
    server = place if place.startswith("//") else f"///{'' if place == '/' else place}"
    in_url = dict(parse_qsl(query, keep_blank_values=True))
    user = {name: options[name] for name in ("user", "password") if options.get(name)}
    parameters = libpq_parameters({**options, **in_url, **user})
    hosts = server.removeprefix("//").partition("/")[0].split(",")
    in_hosts = [unquote(match[1]) for match in map(_PORT.fullmatch, hosts) if match]
    for port in filter(None, [*in_hosts, *parameters.get("port", "").split(",")]):
        if not (_WHOLE_NUMBER.fullmatch(port) and 0 < int(port) < 65_536):
            raise ValueError(f"{_HAS_WRONG}: the port must be a whole number from 1 to 65535")
    return server, parameters


def _url_parts(url: str) -> tuple[str, str]:
    """Place and parameters of ``jdbc:postgresql://host:port/database?parameter=value``.

    Raises:
        ValueError: it is no such URL; the text holds nothing of it.
    """
    if not url.startswith(_POSTGRES):
        raise ValueError(
            f"is of another database, and the jdbc sink writes to PostgreSQL only: write it as "
            f"{_POSTGRES}//host:port/database"
        )
    place, _, query = url.removeprefix(_POSTGRES).partition("?")
    if "@" in place:  # libpq would take it, the driver of Java not
        raise ValueError(
            "has user and password, which have no place before the host: write "
            "?user=...&password=... behind the database, or spark.sink.options.user and password"
        )
    return place, query


def libpq_parameters(given: Mapping[str, str]) -> dict[str, str]:
    """Parameters by the names of pgJDBC or libpq as libpq has them.

    Source: pgJDBC's "Connecting to the database" and libpq's "Parameter key words".

    Raises:
        ValueError: a value can't be right, or the sink decides the parameter.
    """
    for name, text in given.items():
        if text and (why := _why_not(name, text)):
            raise ValueError(f"{_HAS_WRONG}: {name} {why}")
    found = {_NAMES.get(name, name): text for name, text in given.items() if text}
    if found.pop("ssl", "false" if "ssl" not in given else "true").lower() == "true":
        found.setdefault("sslmode", "verify-full")
    if schema := found.pop("currentSchema", ""):
        path = "-csearch_path=" + _BLANK.sub(r"\\\g<0>", schema)
        found["options"] = f"{found.get('options', '')} {path}".strip()
    if target := found.get("target_session_attrs"):
        found["target_session_attrs"] = _TARGETS[target.lower()]
    return found


def _why_not(name: str, text: str) -> str:
    libpq_name = _NAMES.get(name, name)
    if name in _OURS:
        where = ": the database stands behind the host" if name == "dbname" else ""
        return f"is no parameter of this sink{where}; take it out"
    if libpq_name in _WHOLE and not _WHOLE_NUMBER.fullmatch(text):
        return "must be a whole number"
    if libpq_name == "target_session_attrs" and text.lower() not in _TARGETS:
        return f"must be one of {', '.join(_TARGETS)}: the sink writes"
    return ""
