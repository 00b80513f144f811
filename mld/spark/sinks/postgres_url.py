"""What a JDBC URL of PostgreSQL means to psycopg. Pure but for the environment given.

Source: pgJDBC's "Connecting to the database" and libpq's "Connection strings".
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote

from mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "jdbc:postgresql:"
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
_TARGETS = {"primary": "read-write", "master": "read-write", "any": "any"}


def connection_arguments(
    url: str, options: Mapping[str, str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Keyword arguments for ``psycopg.connect``.

    Args:
        url: ``jdbc:postgresql://host:port/database?parameter=value``.
        options: ``spark.sink.options.*``; ``user`` and ``password`` count, before those of the URL.
        environ: ``PGUSER`` and ``PGPASSWORD`` count where neither says something.

    Raises:
        SparkConfigError: it is no such URL.
    """
    if not url.startswith(PREFIX):
        raise SparkConfigError(
            "spark.sink.url: the jdbc sink writes to PostgreSQL only; write the URL as "
            "jdbc:postgresql://host:port/database"
        )
    place, _, query = url.removeprefix(PREFIX).partition("?")
    parameters = dict(parse_qsl(query, keep_blank_values=True))
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
    if schema := parameters.get("currentSchema"):
        found["options"] = f"-csearch_path={schema}"
    if target := _TARGETS.get(parameters.get("targetServerType", "").lower()):
        found["target_session_attrs"] = target
    return found
