"""Whether payloads of an Avro schema can be decoded without danger, whatever their bytes are.

The decoder is native code. Nothing in it bounds how deep a payload nests or how many items of no
bytes it announces: a schema that refers to itself would let a payload of 1 KB overflow the stack,
which ends the process (seen), and an array of nulls lets five bytes stand for billions of items. So
the first kind needs another reader, and the second is refused.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kcl_mld.retrieval.model.schema import Undecodable

#: Deeper than any schema that was written by hand or by a generator.
MOST_DEPTH = 64
#: Types to visit; a definition has at most 170 KB.
_MOST_TYPES = 100_000
#: More digits than any decimal of a database has; longer ones take the square of their length.
MOST_DIGITS = 1000
_LEAST_BYTES = {
    "null": 0,
    "boolean": 1,
    "int": 1,
    "long": 1,
    "float": 4,
    "double": 8,
    "bytes": 1,
    "string": 1,
}
#: Logical types that get readers of our own, see :mod:`kcl_mld.retrieval.adapters.schema_decoders`: those of the
#: library refuse what their type of Python can't hold, and with it the whole record.
OWN_LOGICAL_TYPES = {
    name: f"kcl-mld-{name}"
    for name in (
        "date",
        "decimal",
        "duration",
        "local-timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-nanos",
        "time-micros",
        "time-millis",
        "timestamp-micros",
        "timestamp-millis",
        "timestamp-nanos",
        "uuid",
    )
}


class _Walk:
    """One walk over a schema.

    Attributes:
        refers_to_itself: a type was met within itself.
    """

    def __init__(self) -> None:
        self.refers_to_itself = False
        self._sizes: dict[str, int | None] = {}
        self._depths: dict[str, int] = {}
        self._types = 0

    def visit(self, schema: Any, namespace: str, depth: int) -> tuple[Any, int, int]:
        """A type, its least encoded size in bytes, and how deep it nests.

        Returns: the type with our logical types, the size, the depth.

        Raises:
            Undecodable: it is too deep or too large, or is no Avro type.
        """
        self._types += 1
        if depth > MOST_DEPTH or self._types > _MOST_TYPES:
            raise Undecodable(f"the schema nests deeper than {MOST_DEPTH} types or is too large")
        if isinstance(schema, str):
            return self._named(schema, namespace, depth)
        if isinstance(schema, list):
            branches = [self.visit(branch, namespace, depth + 1) for branch in schema]
            deepest = max((one[2] for one in branches), default=0)
            return [one[0] for one in branches], 1, deepest + 1
        if not isinstance(schema, dict) or "type" not in schema:
            raise Undecodable("the definition is not an Avro schema")
        return self._complex(schema, namespace, depth)

    def _named(self, name: str, namespace: str, depth: int) -> tuple[str, int, int]:
        if name in _LEAST_BYTES:
            return name, _LEAST_BYTES[name], 1
        for full in (_full_name(name, namespace), name):
            if full in self._sizes:
                size = self._sizes[full]
                if size is None:
                    # What ends in such a type has a choice before it, which takes a byte.
                    self.refers_to_itself = True
                    return name, 1, 1
                if depth + self._depths[full] > MOST_DEPTH:
                    raise Undecodable(f"the schema nests deeper than {MOST_DEPTH} types")
                return name, size, self._depths[full]
        raise Undecodable(f"the schema names an unknown type ({name})")

    def _complex(
        self, schema: dict[str, Any], namespace: str, depth: int
    ) -> tuple[dict[str, Any], int, int]:
        kind = schema["type"]
        match kind:
            case "array" | "map":
                key = "items" if kind == "array" else "values"
                inner, size, deepest = self.visit(schema.get(key), namespace, depth + 1)
                if kind == "array" and size == 0:
                    raise Undecodable("the schema has an array of items without any bytes")
                return {**schema, key: inner}, 1, deepest + 1
            case "record" | "error":
                return self._record(schema, namespace, depth)
            case "fixed" | "enum":
                size = _fixed_size(schema) if kind == "fixed" else 1
                full, _ = _name_of(schema, namespace)
                self._sizes[full], self._depths[full] = size, 1
                return _with_own_logical_type(schema), size, 1
            case _:
                inner, size, deepest = self.visit(kind, namespace, depth + 1)
                return _with_own_logical_type({**schema, "type": inner}), size, deepest

    def _record(
        self, schema: dict[str, Any], namespace: str, depth: int
    ) -> tuple[dict[str, Any], int, int]:
        full, inside = _name_of(schema, namespace)
        fields = schema.get("fields")
        if not isinstance(fields, list) or not all(isinstance(one, dict) for one in fields):
            raise Undecodable(f"the schema has a record without fields ({full})")
        self._sizes[full] = None  # as long as it is not known, it is in the making
        visited = [self.visit(one.get("type"), inside, depth + 1) for one in fields]
        size = sum(one[1] for one in visited)
        deepest = 1 + max((one[2] for one in visited), default=0)
        self._sizes[full], self._depths[full] = size, deepest
        typed = [{**field, "type": one[0]} for field, one in zip(fields, visited, strict=True)]
        return {**schema, "fields": typed}, size, deepest


class SafeSchema(NamedTuple):
    """A schema for the decoder.

    Attributes:
        schema: with logical types that the decoder reads badly renamed to ours.
        refers_to_itself: only a reader that bounds the depth of a payload may read with it.
    """

    schema: Any
    refers_to_itself: bool


def safe_schema(definition: object) -> SafeSchema:
    """Look at a schema before anything is decoded with it.

    Raises:
        Undecodable: no payload of it can be decoded safely, or it is not an Avro schema.
    """
    walk = _Walk()
    schema = walk.visit(definition, "", 1)[0]
    return SafeSchema(schema, walk.refers_to_itself)


def _fixed_size(schema: dict[str, Any]) -> int:
    size = schema.get("size")
    if not isinstance(size, int) or size < 0:
        raise Undecodable("the schema has a fixed type without a size")
    return size


def _with_own_logical_type(schema: dict[str, Any]) -> dict[str, Any]:
    logical = schema.get("logicalType")
    if logical == "decimal" and not _is_decimal(schema):
        # As Avro says of a wrong one: it is its underlying type.
        return {key: value for key, value in schema.items() if key != "logicalType"}
    if not isinstance(logical, str) or logical not in OWN_LOGICAL_TYPES:
        return schema
    return {**schema, "logicalType": OWN_LOGICAL_TYPES[logical]}


def _is_decimal(schema: dict[str, Any]) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int):
        return False
    return 0 < precision <= MOST_DIGITS and 0 <= scale <= precision


def _name_of(schema: dict[str, Any], namespace: str) -> tuple[str, str]:
    """The full name of a definition, and the namespace within it."""
    name = str(schema.get("name", ""))
    full = _full_name(name, str(schema.get("namespace", namespace) or ""))
    return full, full.rpartition(".")[0]


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
