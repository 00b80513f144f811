"""The lines of stdin: as bytes where nobody has touched it, else as the program's file gives them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kcl_mld.children.adapters.kclpy_path import SHIM
from kcl_mld_protocol.transcripts import Direction, load, names

#: Reads like the library does, and tells the types and the lines.
READER = """
import sys
from amazon_kclpy import kcl
process = kcl.KCLProcess(type("Processor", (), {"version": 3}))
%s
while line := process.io_handler.read_line():
    print(type(line).__name__, len(line), ascii(line[:9]), ascii(line[-9:]))
print(ascii(line), ascii(process.io_handler.read_line()))
"""


def read(given: bytes, touch: str = "", **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-B", "-c", READER % touch],
        input=given,
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(SHIM), "PYTHONUTF8": "1", **environment},
    )
    assert not done.stderr, done.stderr.decode()
    return done.stdout.decode().splitlines()


def test_lines_are_bytes_whatever_their_length() -> None:
    lengths = [1, 2, 2**18 - 1, 2**18, 2**18 + 1, 3_000_000, 1, 5]
    given = b"".join(b"x" * (length - 1) + b"\n" for length in lengths) + b"end"
    told = read(given)
    assert [line.split()[:2] for line in told[:-1]] == [
        ["bytes", str(length)] for length in [*lengths, 3]
    ]
    assert told[-2:] == ["bytes 3 b'end' b'end'", "b'' b''"]


def test_nothing_is_read_of_an_empty_stdin() -> None:
    assert read(b"") == ["b'' b''"]


@pytest.mark.parametrize(
    ("touch", "first"),
    [
        ("sys.stdin.readline()", "str 4 'two\\n' 'two\\n'"),
        ("sys.stdin.read(2)", "str 2 'e\\n' 'e\\n'"),
        ("next(sys.stdin)", "str 4 'two\\n' 'two\\n'"),
        # What its buffer holds is not lost.
        ("sys.stdin.buffer.readline()", "bytes 4 b'two\\n' b'two\\n'"),
        ("sys.stdin.buffer.peek()", "bytes 4 b'one\\n' b'one\\n'"),
        ("sys.stdin.reconfigure(encoding='latin-1')", "str 4 'one\\n' 'one\\n'"),
        ("sys.__stdin__ = None", "str 4 'one\\n' 'one\\n'"),
        ("process.io_handler.input_file = open(0)", "str 4 'one\\n' 'one\\n'"),
        ("process.io_handler.input_file = open(0, 'rb')", "bytes 4 b'one\\n' b'one\\n'"),
    ],
)
def test_what_a_program_did_with_stdin_before_counts(touch: str, first: str) -> None:
    assert read(b"one\ntwo\nthree\n", touch)[0] == first


def test_another_encoding_of_the_environment_is_that_of_the_lines() -> None:
    told = read(b"\xe4\n", PYTHONUTF8="0", PYTHONIOENCODING="latin-1")
    assert told[0] == "str 2 '\\xe4\\n' '\\xe4\\n'"


def test_bytes_that_stdin_escapes_are_escaped_by_the_message_too() -> None:
    ask = "print(ascii(process.io_handler.load_action(process.io_handler.read_line())))"
    told = read(b'"\xff"\n', ask, PYTHONIOENCODING="utf-8:surrogateescape")
    assert told == ["'\\udcff'", "b'' b''"]


def test_recorded_batches_are_decoded_by_msgspec_and_nothing_else_is() -> None:
    """So that other tests of the decoder are not tests of json."""
    ask = """
from amazon_kclpy.batch_decoder import decode_batch
for line in sys.stdin.buffer:
    for given in (line, line.decode()):
        print(b'"processRecords"' in line, decode_batch(given) is not None)
print(decode_batch(None), decode_batch(bytearray(b'{"action":"processRecords",')))
"""
    lines = {
        one.line + b"\n"
        for name in names()
        for one in load(name)
        if one.direction is Direction.TO_CHILD
    }
    told = read(b"".join(sorted(lines)), ask)
    assert set(told[:-2]) == {"True True", "False False"}
    assert told[-2:] == ["None None", "b'' b''"]
