"""Children written with other people's client libraries, driven through the real launcher."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.children.adapters.child_process import ProcessLauncher
from kcl_mld.children.adapters.kclpy_path import SHIM
from tests.kclpy_cache import aws_kcl, kclpy

if TYPE_CHECKING:
    from kcl_mld.children.ports import Child, ChildLauncher

pytestmark = pytest.mark.process

DATA = Path(__file__).resolve().parents[1] / "data"
PYTHON = [sys.executable, str(DATA / "kclpy" / "processors.py")]


@dataclass
class Conversation:
    """Lines to and from one child, in the daemon's role."""

    child: Child
    rest: bytes = b""
    junk: list[bytes] = field(default_factory=list)

    async def say(self, **message: Any) -> None:
        await self.child.write(json.dumps(message).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        """Next message; other lines are junk."""
        while True:
            while b"\n" not in self.rest:
                data = await self.child.read()
                assert data, "the child ended its stdout"
                self.rest += data
            line, _, self.rest = self.rest.partition(b"\n")
            if line.startswith(b"{"):
                message: dict[str, Any] = json.loads(line)
                return message
            self.junk.append(line)

    async def done(self, action: str) -> None:
        assert await self.hear() == {"action": "status", "responseFor": action}

    async def checkpoint(self, error: str | None = None) -> tuple[Any, Any]:
        """Answer a checkpoint; returns what it asked for."""
        asked = await self.hear()
        assert asked["action"] == "checkpoint"
        await self.say(**asked, **({"error": error} if error else {}))
        return asked.get("sequenceNumber"), asked.get("subSequenceNumber")

    async def begin(self) -> None:
        """The first message, answered."""
        await self.say(
            action="initialize",
            shardId="shardId-0",
            sequenceNumber="LATEST",
            subSequenceNumber=0,
        )
        await self.done("initialize")


def records(count: int, size: int) -> list[dict[str, Any]]:
    data = base64.b64encode(b"\xff" * size).decode()
    return [
        {
            "action": "record",
            "partitionKey": f"key-{number}",
            "data": data,
            "approximateArrivalTimestamp": 1500000000000 + number,
            "sequenceNumber": str(10**55 + number),
            "subSequenceNumber": 0,
            "extra": number,
        }
        for number in range(count)
    ]


async def live(
    argv: list[str], env: dict[str, str], launcher: ChildLauncher | None = None
) -> list[str]:
    """A whole life with a large batch and a stop; returns what the child said it saw."""
    lines: list[bytes] = []
    child = await (launcher or ProcessLauncher()).start(argv, env, lines.append)
    talk = Conversation(child)
    try:
        async with asyncio.timeout(60):
            await talk.begin()
            for batch in (records(3, 10), records(3000, 1000)):
                await talk.say(action="processRecords", records=batch, millisBehindLatest=5)
                sequence_number, _ = await talk.checkpoint()
                assert sequence_number in {None, batch[-1]["sequenceNumber"]}
                await talk.done("processRecords")
            await talk.say(action="shutdownRequested")
            await talk.checkpoint("ShutdownException")
            await talk.done("shutdownRequested")
            await talk.say(action="leaseLost")
            await talk.done("leaseLost")
            await child.close_stdin()
            assert await child.wait() == 0
    finally:
        child.kill()
        await child.wait()
    return [line.decode().removeprefix("saw: ") for line in lines if line.startswith(b"saw: ")]


async def hang(argv: list[str], env: dict[str, str], launcher: ChildLauncher) -> str:
    """What a child that is terminated after ``initialize`` writes to stderr."""
    lines: list[bytes] = []
    child = await launcher.start(argv, env, lines.append)
    talk = Conversation(child)
    try:
        async with asyncio.timeout(60):
            await talk.begin()
            child.terminate()
            while await child.read():
                pass
            assert await child.wait() == -signal.SIGTERM
            child.read_stderr()
    finally:
        child.kill()
        await child.wait()
    return b"\n".join(lines).decode()


RUNNER = """
from kcl_mld_protocol.child import RecordProcessor, run
class App(RecordProcessor):
    def process_records(self, batch):
        pass
run(App())
"""


@pytest.mark.parametrize("program", ["stand-in", "runner"])
def test_a_python_program_that_is_terminated_says_where_it_was(
    program: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(RUNNER)
    env = {"PYTHONPATH": str(SHIM if program == "stand-in" else DATA.parents[1])}
    argv = (
        [*PYTHON, "3", "checkpoint"]
        if program == "stand-in"
        else [sys.executable, str(tmp_path / "app.py")]
    )
    said = asyncio.run(hang(argv, env, ProcessLauncher()))
    assert "(most recent call first):" in said
    assert "in run" in said


@pytest.mark.parametrize("version", ["1", "2", "3"])
@pytest.mark.parametrize("library", ["shim", "real"])
def test_a_kclpy_program_lives_through_a_lease(version: str, library: str) -> None:
    env = {}
    if library == "real":
        folder = kclpy()
        if folder is None:
            pytest.skip("amazon_kclpy cannot be fetched here")
        env["PYTHONPATH"] = str(folder)
    saw = asyncio.run(live([*PYTHON, version, "checkpoint"], env))
    assert len([line for line in saw if " key-" in line]) == 3003
    assert "refused ShutdownException 'ShutdownException'" in saw
    assert any("ZOMBIE" in line or "lease_lost" in line for line in saw[-2:])


def test_a_node_program_lives_through_a_lease() -> None:
    folder, node = aws_kcl(), shutil.which("node")
    if folder is None or node is None:
        pytest.skip("Node or aws-kcl is not available here")
    argv = [node, str(DATA / "node" / "app.js")]
    saw = asyncio.run(live(argv, {"NODE_PATH": str(folder)}))
    assert saw[0] == "initialize shardId-0"
    assert len([line for line in saw if line.endswith(" 1000")]) == 3000
    assert saw[-3:] == ["shutdownRequested", "refused ShutdownException", "leaseLost"]


@pytest.mark.parametrize("library", ["shim", "real"])
def test_kclpy_takes_flat_keys_of_a_schema_and_dies_of_an_object(library: str) -> None:
    env = {}
    if library == "real":
        folder = kclpy()
        if folder is None:
            pytest.skip("amazon_kclpy cannot be fetched here")
        env["PYTHONPATH"] = str(folder)
    flat = {"schemaVersionId": "v", "schemaName": "orders", "dataFormat": "AVRO"}
    assert asyncio.run(survives({**records(1, 10)[0], **flat}, env))
    assert not asyncio.run(survives({**records(1, 10)[0], "schema": flat}, env))


async def survives(record: dict[str, Any], env: dict[str, str]) -> bool:
    """Whether a kclpy program answers a batch with this record."""
    argv = [*PYTHON, "3", "never"]
    child = await ProcessLauncher().start(argv, env, lambda _line: None)
    talk = Conversation(child)
    try:
        async with asyncio.timeout(60):
            await talk.begin()
            await talk.say(action="processRecords", records=[record], millisBehindLatest=5)
            while data := await child.read():
                if b'"responseFor":"processRecords"' in data.replace(b" ", b""):
                    return True
            return False
    finally:
        child.kill()
        await child.wait()
