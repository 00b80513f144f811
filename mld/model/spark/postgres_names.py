"""How a database of PostgreSQL and a table in it are named: ``spark.sink.url``, ``spark.sink.table``.

Pure. The driver of Spark reads URLs its own way and tells what it can't read with the password.
"""

from __future__ import annotations

import re

PREFIX = "jdbc:postgresql:"
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def url_parts(url: str) -> tuple[str, str]:
    """Place and parameters of ``jdbc:postgresql://host:port/database?parameter=value``.

    Raises:
        ValueError: it is no such URL; the text holds nothing of it.
    """
    if not url.startswith(PREFIX):
        raise ValueError(
            f"is of another database, and the jdbc sink writes to PostgreSQL only: write it as "
            f"{PREFIX}//host:port/database"
        )
    place, _, query = url.removeprefix(PREFIX).partition("?")
    if "@" in place:  # the driver would take all of it for a host's name, and tell it
        raise ValueError(
            "has user and password, which have no place before the host: write "
            "?user=...&password=... behind the database, or spark.sink.options.user and password"
        )
    return place, query


def table_parts(text: str) -> tuple[str, ...]:
    """``schema.table`` or ``"odd.name"`` as its parts; each is taken exactly as written.

    Raises:
        ValueError: it is no name of a table.
    """
    parts, place = [], 0
    while match := _PART.match(text, place):
        parts.append(match[1].replace('""', '"') if match[1] else match[2].strip())
        place = match.end()
        if place == len(text):
            return tuple(parts)
        if text[place] != ".":
            break
        place += 1
    raise ValueError(f"{text} is no name of a table: write it as table or schema.table")
