"""A real daemon, a real Glue registry (moto), and children of unmodified kclpy that see schemas."""

from __future__ import annotations

import json
import shutil
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.schema_frames import ORDER_AVRO, avro, frame
from tests.kclpy_cache import aws_kcl, kclpy
from tests.process.daemon import journals, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.daemon import Application, Running

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).resolve().parents[1] / "data" / "kclpy" / "schemas.py"
NODE_PROGRAM = PROGRAM.parents[1] / "node" / "schemas.js"
JSON_SCHEMA = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}
ON = {"glueSchemaRegistry.enabled": "true"}
DECODE = {**ON, "glueSchemaRegistry.mode": "decode"}
VALUE = {"id": 7, "customer": "Ö", "lines": ["a", "b"]}
AVRO = avro(ORDER_AVRO, VALUE)


class Registry:
    """Two schemas in moto's Glue."""

    def __init__(self, app: Application) -> None:
        self.glue = app.aws.client("glue")
        self.registry = app.name
        self.glue.create_registry(RegistryName=app.name)
        self.avro = self.version("orders", "AVRO", ORDER_AVRO)
        self.json = self.version("events", "JSON", JSON_SCHEMA)

    def version(self, name: str, data_format: str, definition: Any) -> str:
        made = self.glue.create_schema(
            RegistryId={"RegistryName": self.registry},
            SchemaName=name,
            DataFormat=data_format,
            Compatibility="NONE",
            SchemaDefinition=json.dumps(definition),
        )
        return str(made["SchemaVersionId"])


def put(app: Application, *payloads: bytes) -> None:
    for payload in payloads:
        app.kinesis.put_record(StreamName=app.name, Data=payload, PartitionKey="k")


def seen(run: Running, count: int) -> list[dict[str, Any]]:
    def records() -> list[dict[str, Any]]:
        return [one for entries in journals(run).values() for one in entries]

    wait_until(lambda: len(records()) >= count, f"{count} records arrived")
    return records()


def start(app: Application, **properties: str | None) -> Running:
    library = kclpy()
    environment = {"PYTHONPATH": str(library)} if library else {}
    return app.start(
        executable=(sys.executable, str(PROGRAM)), environment=environment, **properties
    )


@pytest.mark.parametrize("properties", [ON, DECODE], ids=["pass", "decode"])
def test_an_unmodified_child_gets_payloads_and_the_keys_of_their_schemas(
    new_app: Callable[..., Application], properties: dict[str, str]
) -> None:
    app = new_app()
    registry = Registry(app)
    nobody = frame(str(uuid.uuid4()), b"binary")
    corrupt = frame(registry.avro, AVRO, compressed=True)[:-2]
    put(
        app,
        frame(registry.avro, AVRO),
        frame(registry.avro, AVRO, compressed=True),
        frame(registry.json, b'{"a": 1}'),
        b"plain",
        nobody,
        corrupt,
    )
    run = start(app, **properties)
    found = seen(run, 6)
    decodes = properties is DECODE
    order = json.dumps(VALUE, separators=(",", ":"), ensure_ascii=False).encode()
    assert [bytes.fromhex(one["data"]) for one in found] == [
        order if decodes else AVRO,
        order if decodes else AVRO,
        b'{"a": 1}',
        b"plain",
        nobody,
        corrupt,
    ]
    expected = [(registry.avro, "orders", "AVRO")] * 2 + [(registry.json, "events", "JSON")]
    shown = [(one["version"], one["name"], one["format"]) for one in found]
    assert shown == expected + [(None, None, None)] * 3
    assert [one["definition"] for one in found[:3]] == [ORDER_AVRO, ORDER_AVRO, JSON_SCHEMA]
    if library := kclpy():
        assert found[0]["library"].startswith(str(library))
    folder = Path(found[0]["folder"])
    assert {one.name for one in folder.iterdir()} >= {registry.avro, registry.json}
    assert run.stop() == 0
    assert not folder.exists()
    assert run.output.count("the registry has no such version") == 1
    assert run.output.count("the payload is not valid zlib") == 1


def test_a_registry_that_is_not_there_leaves_records_framed(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    framed = frame(str(uuid.uuid4()), AVRO)
    put(app, framed)
    run = start(app, **ON, glueEndpoint="http://127.0.0.1:9")
    (record,) = seen(run, 1)
    assert bytes.fromhex(record["data"]) == framed
    assert record["version"] is None
    assert run.stop() == 0
    assert run.output.count("the registry cannot be reached") == 1


def test_switched_off_a_frame_is_data_and_glue_is_not_asked(
    new_app: Callable[..., Application],
) -> None:
    app = new_app()
    registry = Registry(app)
    before = {name for name in app.calls() if name.startswith("glue.")}
    put(app, frame(registry.avro, AVRO))
    run = start(app)
    (record,) = seen(run, 1)
    assert bytes.fromhex(record["data"]) == frame(registry.avro, AVRO)
    assert record["version"] is None
    assert run.stop() == 0
    assert {name for name in app.calls() if name.startswith("glue.")} == before


def test_an_unmodified_node_program_gets_payloads_keys_and_definitions(
    new_app: Callable[..., Application],
) -> None:
    folder, node = aws_kcl(), shutil.which("node")
    if folder is None or node is None:
        pytest.skip("Node or aws-kcl is not available here")
    app = new_app()
    registry = Registry(app)
    put(app, frame(registry.avro, AVRO, compressed=True), b"plain")
    run = app.start(
        executable=(node, str(NODE_PROGRAM)), environment={"NODE_PATH": str(folder)}, **DECODE
    )
    first, second = seen(run, 2)
    assert json.loads(bytes.fromhex(first["data"])) == VALUE
    assert (first["version"], first["name"], first["format"]) == (registry.avro, "orders", "AVRO")
    assert first["definition"] == ORDER_AVRO
    assert (bytes.fromhex(second["data"]), second["version"]) == (b"plain", None)
    assert run.stop() == 0


def test_streams_of_one_worker_share_what_is_known_of_schemas(
    new_app: Callable[..., Application],
) -> None:
    one, other = new_app(), new_app()
    registry = Registry(one)
    for app in (one, other):
        put(app, frame(registry.avro, AVRO))
    before = one.calls().get("glue.GetSchemaVersion", 0)
    run = start(one, **ON, streamName=None, multiStream="true", streams=f"{one.name},{other.name}")
    found = seen(run, 2)
    assert [(bytes.fromhex(record["data"]), record["name"]) for record in found] == [
        (AVRO, "orders")
    ] * 2
    assert run.stop() == 0
    assert one.calls()["glue.GetSchemaVersion"] - before == 1
