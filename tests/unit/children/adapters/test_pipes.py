"""The writing end of a child's stdin, on real pipes whose other end the test reads."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from kcl_mld.children.adapters import pipes
from kcl_mld.children.adapters.pipes import PipeWriter

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LINE = b"x" * 3_000_000 + b"\n"


def writing(test: Callable[[PipeWriter, int], Awaitable[None]]) -> None:
    async def run() -> None:
        reading, fd = os.pipe()
        writer = PipeWriter(fd)
        try:
            await test(writer, reading)
        finally:
            writer.close()
            os.close(reading)

    asyncio.run(asyncio.wait_for(run(), 20))


async def read(reading: int, count: int, piece: int = 2**16) -> bytes:
    data = bytearray()
    while len(data) < count:
        data += await asyncio.to_thread(os.read, reading, min(piece, count - len(data)))
    return bytes(data)


@pytest.fixture(params=["large", "ordinary"])
def pipe_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without privileges only some pipes of a user are large."""
    if request.param == "ordinary":
        monkeypatch.setattr(pipes, "enlarge_pipe", lambda _fd: False)


@pytest.mark.usefixtures("pipe_size")
@pytest.mark.parametrize("piece", [2**14, 2**21])
def test_a_line_longer_than_the_pipe_arrives_whole(piece: int) -> None:
    async def test(writer: PipeWriter, reading: int) -> None:
        written = asyncio.ensure_future(writer.write(LINE))
        assert await read(reading, len(LINE), piece) == LINE
        await written

    writing(test)


@pytest.mark.usefixtures("pipe_size")
def test_what_is_written_meanwhile_comes_behind_the_line() -> None:
    async def test(writer: PipeWriter, reading: int) -> None:
        first = asyncio.ensure_future(writer.write(LINE))
        await asyncio.sleep(0)
        start = await read(reading, 2**20)
        second = asyncio.ensure_future(writer.write(b"answer\n"))
        assert start + await read(reading, len(LINE) + 7 - len(start)) == LINE + b"answer\n"
        await asyncio.gather(first, second)

    writing(test)


@pytest.mark.usefixtures("pipe_size")
def test_closing_ends_all_that_wait_for_room() -> None:
    async def test(writer: PipeWriter, _reading: int) -> None:
        waiting = [asyncio.ensure_future(writer.write(LINE)) for _ in range(2)]
        await asyncio.sleep(0)
        writer.close()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(one) for one in results] == [BrokenPipeError, BrokenPipeError]

    writing(test)


@pytest.mark.usefixtures("pipe_size")
def test_a_reader_that_goes_away_ends_a_write_under_way() -> None:
    async def run() -> None:
        reading, fd = os.pipe()
        writer = PipeWriter(fd)
        written = asyncio.ensure_future(writer.write(LINE))
        await asyncio.sleep(0)
        os.close(reading)
        with pytest.raises(BrokenPipeError):
            await written
        writer.close()

    asyncio.run(asyncio.wait_for(run(), 20))
