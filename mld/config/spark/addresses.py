"""How properties name where something is: Spark's servers, places in S3, tables. Pure."""

from __future__ import annotations

import re
import urllib.parse
from dataclasses import dataclass

_STANDALONE = "spark://"
DEFAULT_PORT = 15002
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", re.ASCII)
#: What Spark, Delta's readers and URLs all take as it is.
_S3_PREFIX = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*", re.ASCII)
_S3_SCHEMES = ("s3", "s3a")
_TABLE_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def is_local_master(master: str) -> bool:
    """True for ``local``, ``local[4]``, ``local[*, 3]``: executors live in the server itself."""
    return master == "local" or master.startswith("local[")


def addresses_of(master: str) -> tuple[tuple[str, int], ...]:
    """Hosts and ports of ``spark://one:7077,two:7077``; none for a master of another kind.

    Raises:
        ValueError: a host or a port is missing.
    """
    if not master.startswith(_STANDALONE):
        return ()
    return tuple(_address(each) for each in master.removeprefix(_STANDALONE).split(","))


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not (
        port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536
    ):
        raise ValueError(f"must look like {_STANDALONE}host:7077")
    return host, int(port)


def connect_address(url: str) -> tuple[str, int]:
    """Host and port of a Connect URL, ``sc://host:port/;name=value``.

    Raises:
        ValueError: it is none; the message names the expected form.
    """
    if not url.startswith("sc://"):
        raise ValueError(f"must begin with sc://, like sc://host:{DEFAULT_PORT}")
    try:
        parsed = urllib.parse.urlparse("http" + url[2:])
        host, port = parsed.hostname, parsed.port
    except ValueError as error:
        raise ValueError(f"is not a URL: {error}") from error
    if not host or parsed.path not in ("", "/"):
        raise ValueError(f"must look like sc://host:{DEFAULT_PORT}/;name=value")
    return host, port or DEFAULT_PORT


@dataclass(frozen=True, slots=True)
class S3Place:
    """A place in a bucket.

    Attributes:
        prefix: of the keys, without slashes at its ends.
    """

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def below(self, name: str) -> S3Place:
        """A place in it."""
        return S3Place(self.bucket, f"{self.prefix}/{name}")

    def above(self) -> S3Place:
        """The place it is in; the prefix of the whole bucket is empty."""
        return S3Place(self.bucket, self.prefix.rpartition("/")[0])

    def key(self, path: str) -> str:
        """Of an object in it."""
        return f"{self.prefix}/{path}" if self.prefix else path


def is_s3(text: str) -> bool:
    """True for a URL of S3, a wrong one included."""
    scheme, mark, _ = text.strip().partition("://")
    return bool(mark) and scheme in _S3_SCHEMES


def s3_place(text: str) -> S3Place:
    """``s3://bucket/prefix`` or ``s3a://bucket/prefix``, which mean the same.

    Raises:
        ValueError: it is none; the message gives the reason.
    """
    _, _, rest = text.strip().partition("://")
    bucket, _, prefix = rest.partition("/")
    prefix = prefix.strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(f"{bucket!r} is no name of a bucket")
    if not prefix:
        raise ValueError("it names the bucket alone, and a prefix in it is needed")
    if not _S3_PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/")):
        raise ValueError(
            f"the prefix {prefix!r} has other characters than letters, digits, _ . = - and single /"
        )
    return S3Place(bucket, prefix)


def namespaced_table(text: str) -> tuple[str, ...]:
    """``namespace.table`` as its parts, two at least; each is taken exactly as written.

    Raises:
        ValueError: it is no such name.
    """
    if len(parts := table_parts(text)) < 2:
        raise ValueError(f"{text} has no namespace: write it as namespace.table")
    return parts


def table_parts(text: str) -> tuple[str, ...]:
    """``schema.table`` or ``"odd.name"`` as its parts; each is taken exactly as written.

    Raises:
        ValueError: it is no name of a table.
    """
    parts, place = [], 0
    while match := _TABLE_PART.match(text, place):
        parts.append(match[1].replace('""', '"') if match[1] else match[2].strip())
        place = match.end()
        if place == len(text):
            return tuple(parts)
        if text[place] != ".":
            break
        place += 1
    raise ValueError(f"{text} is no name of a table: write it as table or schema.table")
