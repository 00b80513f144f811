"""User records -> one record as the Kinesis Producer Library packs them.

Source: messages.proto and aggregation-format.md of amazon-kinesis-producer.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from kcl_mld.retrieval.rules.deaggregate import MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEY, _RECORD = 1, 3
_KEY_INDEX_0 = b"\x08\x00"
_DATA = 3


def aggregate(partition_key: str, payloads: Sequence[bytes]) -> bytes:
    """One record of user records with one key, which is to be that of the record, too.

    So all of them belong to the shard that the record goes to, whatever is split meanwhile.
    """
    message = _field(_KEY, partition_key.encode())
    for payload in payloads:
        message += _field(_RECORD, _KEY_INDEX_0 + _field(_DATA, payload))
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def _field(number: int, payload: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(payload)) + payload


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])
