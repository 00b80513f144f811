"""An encoder of Glue Schema Registry frames, written from the table of the format alone."""

from __future__ import annotations

import io
import json
import struct
import uuid
import zlib
from typing import TYPE_CHECKING, Any

import fastavro

from kcl_mld.errors import NotFound
from kcl_mld.retrieval.model.schema import SchemaVersion

if TYPE_CHECKING:
    from collections.abc import Callable

ORDER_ID = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
ORDER_AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": "string"}},
    ],
}
ORDER = SchemaVersion(ORDER_ID, "orders", "AVRO", json.dumps(ORDER_AVRO))


def frame(version_id: str, payload: bytes, *, compressed: bool = False) -> bytes:
    """3, compression, 16 bytes of UUID, payload."""
    if compressed:
        payload = zlib.compress(payload)
    return struct.pack(">BB16s", 3, 5 if compressed else 0, uuid.UUID(version_id).bytes) + payload


def avro(schema: Any, value: Any) -> bytes:
    """A value as a serializer writes it."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


class FakeGlue:
    """A registry in memory that counts its calls."""

    def __init__(self, *versions: SchemaVersion) -> None:
        self.versions = {one.version_id: one for one in versions}
        self.calls: list[str] = []
        self.failing: BaseException | None = None
        self.before: Callable[[], Any] | None = None

    async def get_schema_version(self, **request: Any) -> dict[str, Any]:
        version_id = request["SchemaVersionId"]
        self.calls.append(version_id)
        if self.before is not None:
            await self.before()
        if self.failing is not None:
            raise self.failing
        found = self.versions.get(version_id)
        if found is None:
            raise NotFound("GetSchemaVersion", "EntityNotFoundException", "Schema is not found.")
        return {
            "SchemaVersionId": version_id,
            "SchemaDefinition": found.definition,
            "DataFormat": found.data_format,
            "SchemaArn": f"arn:aws:glue:us-east-1:123456789012:schema/registry/{found.name}",
            "VersionNumber": 1,
            "Status": "AVAILABLE",
        }


class FakeFiles:
    """Definitions in memory."""

    folder = "/run/schemas"

    def __init__(self) -> None:
        self.written: dict[str, str] = {}
        self.failing: OSError | None = None

    async def put(self, version: SchemaVersion) -> None:
        if self.failing is not None:
            raise self.failing
        self.written[version.version_id] = version.definition
