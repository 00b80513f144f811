"""Opaque texts that the service hands out: shard iterators and pages of ListShards.

A token says by itself what it stands for and when it was made, so the model keeps no table of
them. A checksum tells a mangled token from a good one.
"""

from __future__ import annotations

import base64
import binascii
import zlib

#: Life of an iterator and of a page token (Kinesis API reference: 5 minutes).
TOKEN_LIFE_S = 300


def make_token(kind: str, *fields: object) -> str:
    """A token of that kind; fields may not contain line breaks."""
    text = "\n".join((kind, *map(str, fields))).encode()
    return base64.b64encode(zlib.crc32(text).to_bytes(4, "big") + text).decode()


def read_token(kind: str, token: object) -> list[str] | None:
    """The fields of a token; None when it is not one of that kind."""
    if not isinstance(token, str):
        return None
    try:
        raw = base64.b64decode(token, validate=True)
    except (binascii.Error, ValueError):
        return None
    if zlib.crc32(raw[4:]).to_bytes(4, "big") != raw[:4]:
        return None
    found, *fields = raw[4:].decode().split("\n")
    return fields if found == kind else None
