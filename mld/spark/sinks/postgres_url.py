"""What a JDBC URL of PostgreSQL means to psycopg. Pure but for the environment given.

Source: pgJDBC's "Connecting to the database" and libpq's "Connection strings".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode

from mld.model.spark.addresses import url_parts
from mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Names of pgJDBC that libpq knows under another name, or the same.
_NAMES = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connectTimeout": "connect_timeout",
    "loginTimeout": "connect_timeout",
    "ApplicationName": "application_name",
    "targetServerType": "",
}
_CREDENTIALS = ("user", "password")
#: What holds for both connections, wherever it is written.
_BOTH = frozenset(_NAMES) - {*_CREDENTIALS} | {"ssl", "currentSchema", "options"}
#: What libpq wants a backslash before, in ``options``.
_BLANK = re.compile(r"[\s\\]")
_TARGETS = {"primary": "read-write", "master": "read-write", "any": "any"}


def connection_arguments(
    url: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Keyword arguments for ``psycopg.connect``.

    Args:
        url: ``jdbc:postgresql://host:port/database?parameter=value``.
        options: ``spark.sink.options.*``; ``user`` and ``password`` count before those of the URL,
            other parameters of the driver behind them, as the driver has it.
        environ: ``PGUSER`` and ``PGPASSWORD`` count where neither says something.

    Raises:
        SparkConfigError: it is no such URL.
    """
    try:
        place, query = url_parts(url)
    except ValueError as error:
        raise SparkConfigError(f"spark.sink.url {error}") from error
    parameters = {**options, **dict(parse_qsl(query, keep_blank_values=True))}
    arguments = _place(place)
    arguments.update(_translated(parameters))
    arguments.update(credentials(url, options, environ))
    return arguments


def credentials(url: str, options: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    """User and password for both sides: Spark's JDBC writer and our own connection."""
    parameters = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))
    found = {}
    for name, variable in (("user", "PGUSER"), ("password", "PGPASSWORD")):
        text = options.get(name) or parameters.get(name) or environ.get(variable)
        if text:
            found[name] = text
    return found


def driver_url(url: str, options: Mapping[str, str]) -> str:
    """The URL for Spark's side, which then means what it means to ours.

    Without user and password: the driver would take those of a URL before those of options. With
    what options say to the driver: Spark Connect hands on the names of options in small letters.

    Args:
        url: ``spark.sink.url``.
        options: ``spark.sink.options.*``.
    """
    place, _, query = url.partition("?")
    given = dict(parse_qsl(query, keep_blank_values=True))
    more = {name: text for name, text in options.items() if name in _BOTH and name not in given}
    kept = {name: text for name, text in (given | more).items() if name not in _CREDENTIALS}
    if kept == given:
        return url
    return f"{place}?{urlencode(kept)}" if kept else place


def _place(place: str) -> dict[str, str]:
    """``//h1:p1,h2:p2/database``, ``//h/`` or ``database``."""
    if not place.startswith("//"):
        return {"dbname": unquote(place)} if place else {}
    servers, _, database = place.removeprefix("//").partition("/")
    hosts, ports = [], []
    for server in filter(None, servers.split(",")):
        host, colon, port = server.rpartition(":")
        if not colon or port.endswith("]"):
            host, port = server, "5432"
        hosts.append(host.strip("[]"))
        ports.append(port)
    arguments = {"host": ",".join(hosts), "port": ",".join(ports)} if hosts else {}
    if database:
        arguments["dbname"] = unquote(database)
    return arguments


def _translated(parameters: Mapping[str, str]) -> dict[str, str]:
    found = {_NAMES[name]: text for name, text in parameters.items() if _NAMES.get(name) and text}
    if "sslmode" not in found and parameters.get("ssl", "false").lower() in {"true", ""}:
        found["sslmode"] = "verify-full"
    session = [parameters.get("options", "")]
    if schema := parameters.get("currentSchema"):
        session.append("-csearch_path=" + _BLANK.sub(r"\\\g<0>", schema))
    if text := " ".join(filter(None, session)):
        found["options"] = text
    if target := _TARGETS.get(parameters.get("targetServerType", "").lower()):
        found["target_session_attrs"] = target
    return found
