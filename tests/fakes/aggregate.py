"""Packs records as the Kinesis Producer Library does, for tests."""

from __future__ import annotations

import hashlib

from kcl_mld.retrieval.rules.deaggregate import MAGIC


def aggregate(*records: tuple[str, bytes]) -> bytes:
    """One record that holds these (partition key, data) pairs."""
    message = b"".join(_delimited(1, key.encode()) for key, _ in records)
    for index, (_, data) in enumerate(records):
        message += _delimited(3, b"\x08" + _varint(index) + _delimited(3, data))
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def _delimited(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
