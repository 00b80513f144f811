"""Versions of schemas of a Glue Schema Registry, and how a record's schema can fail it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

#: Turns an unframed payload into JSON text; raises :class:`Undecodable`.
Decode: TypeAlias = Callable[[bytes], bytes]


class Undecodable(Exception):
    """A payload does not match its schema, or is of a kind that is not decoded."""


class SchemaFailure(StrEnum):
    """Why a framed record stays as it came; the texts are for logs."""

    NOT_FOUND = "the registry has no such version"
    DENIED = "access to the registry is denied"
    REFUSED = "the registry refused the request"
    UNREACHABLE = "the registry cannot be reached"
    TOO_MANY_UNKNOWN = "too many unknown versions: this one was not asked for"
    UNUSABLE = "its definition cannot be used to decode"
    NOT_ZLIB = "the payload is not valid zlib"
    TOO_LARGE = "the payload is too large to be unframed"
    UNDECODABLE = "the payload does not fit the schema"


@dataclass(frozen=True, slots=True)
class SchemaVersion:
    """One version of a schema; it never changes.

    Attributes:
        version_id: UUID in lower case.
        data_format: ``AVRO``, ``JSON`` or ``PROTOBUF``.
    """

    version_id: str
    name: str
    data_format: str
    definition: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class KnownSchema:
    """A version that was found.

    Attributes:
        decode: makes JSON text of a payload; None = the payload is passed on as it is.
    """

    version: SchemaVersion
    decode: Decode | None = field(default=None, repr=False)


#: By version id.
Catalogue: TypeAlias = Mapping[str, KnownSchema | SchemaFailure]
