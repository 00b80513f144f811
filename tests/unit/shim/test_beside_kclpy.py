"""The stand-in beside amazon_kclpy 3.2.0: the same lines in, the same objects, errors and bytes out.

Both run in processes of their own. The stand-in does so with msgspec, and without it.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from itertools import count
from pathlib import Path

import pytest

from kcl_mld.children.adapters.kclpy_path import SHIM
from kcl_mld_protocol.transcripts import Direction, load, names
from tests.kclpy_cache import kclpy

DATA = Path(__file__).resolve().parents[2] / "data" / "kclpy"
OBSERVER = DATA / "observer.py"
SEED = 43
LINES = 900

INITIALIZE = {"action": "initialize", "shardId": "s", "sequenceNumber": "1", "subSequenceNumber": 0}
RECORD = {
    "data": "AAEC/w==",
    "partitionKey": "käy",
    "sequenceNumber": "49590338271490256608559692538361571095921575989136588898",
    "approximateArrivalTimestamp": 1500000000123,
    "subSequenceNumber": 0,
    "action": "record",
}
SCHEMA = {"schemaVersionId": "7", "schemaName": "n", "dataFormat": "AVRO"}
ANSWER = b'{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null,"error":%s}\n'

#: JSON texts of values that no daemon, or not every one, sends.
ODD = (
    *("null", "true", "false", "0", "-1", "-0", "1.0", "1.5", "1e3", "01", "NaN", "Infinity", ""),
    *("12345678901234567890123", "1" + "0" * 25, "253402214400001", "-62135596800001", "1E400"),
    *('""', '"1500000000123"', '" 15 "', '"x"', '"AA=="', '"AB=="', '"AAB="', '"AAAA"', '"A"'),
    *('"A==="', '"AA=A"', '"=AAA"', '"AA\\n=="', '"AA AA"', '"-_-_"', '"AAAA===="', '"Ã©=="'),
    *('"\\u0041AAA"', '"AA\\u003d="', '"\\ud800"', '"\\udfff\\ud800"', '"\\ud83d\\ude00"'),
    *('"\\u0000"', '"\\/"', '"\\x"', '"a\tb"', '"\x7f"', '"' + "A" * 4000 + '"', '"é€😀"'),
    *("[]", "[1]", "{}", '{"action":"record"}', '{"action":"leaseLost"}', '["AAAA"]', "nul"),
)
KEYS = (*RECORD, "extra", "", "Data", "d\\u0061ta", "records", "millisBehindLatest", "schemaName")
ACTIONS = (
    *("record", "recorD", "processRecords", "leaseLost", "shardEnded", "shutdownRequested"),
    *("initialize", "checkpoint", "shutdown", "unheardOf", ""),
)


def member(name: str, value: object) -> tuple[str, str]:
    return name, json.dumps(value, ensure_ascii=False)


def text(members: list[tuple[str, str]], dice: random.Random) -> str:
    """A JSON object as every daemon writes it, seldom with spaces."""
    colon, comma = (":", ",") if dice.random() < 0.9 else (dice.choice([" :", ": "]), " ,\t")
    return "{" + comma.join(f'"{name}"{colon}{value}' for name, value in members) + "}"


def mutated(members: list[tuple[str, str]], dice: random.Random) -> list[tuple[str, str]]:
    """The members of an object, most often with one change."""
    changed = list(members)
    place = dice.randrange(len(changed))
    match dice.randrange(8):
        case 0:
            changed[place] = (changed[place][0], dice.choice(ODD))
        case 1:
            del changed[place]
        case 2:
            changed.insert(place, (dice.choice(KEYS), dice.choice(ODD)))
        case 3:
            changed.append(dice.choice(changed))
        case 4:
            changed[place] = (changed[place][0], json.dumps(dice.choice(ACTIONS)))
        case 5:
            dice.shuffle(changed)
        case _:
            pass
    return changed


def record(dice: random.Random) -> str:
    members = [member(*one) for one in RECORD.items()]
    if dice.random() < 0.1:
        members += [member(*one) for one in SCHEMA.items()]
    return text(mutated(members, dice) if dice.random() < 0.4 else members, dice)


def line(dice: random.Random) -> bytes:
    """A batch, now and then another message, with a change in some of its parts."""
    records = "[" + ",".join(record(dice) for _ in range(dice.randrange(4))) + "]"
    batch = [("action", '"processRecords"'), ("records", records), ("millisBehindLatest", "12")]
    if dice.random() < 0.2:
        batch = [member(*one) for one in INITIALIZE.items()]
    made = text(mutated(batch, dice) if dice.random() < 0.4 else batch, dice)
    raw = bytearray(made.encode("utf-8", "surrogatepass"))
    if dice.random() < 0.1:
        raw[dice.randrange(len(raw))] = dice.choice(b'\xff\xc0\xed\x00\x0b\r\\"{}[]:,\x85 ')
    return bytes(raw).replace(b"\n", b" ") + dice.choice([b"\n", b"\r\n", b" \n"])


def generated() -> list[bytes]:
    dice = random.Random(SEED)
    return [line(dice) for _ in range(LINES)]


def odd() -> list[bytes]:
    """A batch for each field and each odd value of it, otherwise as every daemon writes it."""
    made = []
    for name in RECORD:
        for value in ODD:
            members = [
                (key, value if key == name else json.dumps(usual)) for key, usual in RECORD.items()
            ]
            one = "{" + ",".join(f'"{key}":{value}' for key, value in members) + "}"
            made.append(f'{{"action":"processRecords","records":[{one}],"millisBehindLatest":0}}\n')
    return [one.encode("utf-8", "surrogatepass") for one in made]


def recorded() -> list[bytes]:
    """Each line that Java sent in the recorded conversations."""
    return [
        one.line + b"\n"
        for name in names()
        for one in load(name)
        if one.direction is Direction.TO_CHILD
    ]


@pytest.fixture(scope="module")
def real() -> Path:
    folder = kclpy()
    if folder is None:
        pytest.skip("amazon_kclpy cannot be fetched here")
    return folder


@pytest.fixture(params=["msgspec", "json"])
def stand_in(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """PYTHONPATH with the stand-in and, for ``json``, without msgspec."""
    if request.param == "msgspec":
        return str(SHIM)
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "msgspec.py").write_text("raise ImportError\n")
    return f"{tmp_path / 'without'}:{SHIM}"


def started(
    library: str | Path, *arguments: str | Path, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-B", *arguments],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(library), "TZ": "CET", "PYTHONUTF8": "1"},
    )


def loaded(library: str | Path, file: Path) -> list[bytes]:
    done = started(library, OBSERVER, "load", file)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.splitlines()


@pytest.mark.parametrize("lines", [recorded, generated, odd])
def test_a_program_sees_the_same_of_each_line(real, stand_in, tmp_path, lines) -> None:
    given = lines()
    file = tmp_path / "lines"
    file.write_bytes(b"".join(given))
    expected, found = loaded(real, file), loaded(stand_in, file)
    assert len(expected) == len(given)
    for one, should, does in zip(given, expected, found, strict=True):
        assert json.loads(does) == json.loads(should), one


def without_frames(stderr: bytes) -> bytes:
    """The frames of a traceback are the library's own."""
    stderr = re.sub(rb"(?m)^  .*\n", b"", stderr)
    return re.sub(rb"MalformedAction: .*", b"MalformedAction", stderr)


def outcome(
    library: str | Path, program: Path, stdin: bytes, *arguments: str
) -> tuple[object, ...]:
    done = started(library, program, *arguments, stdin=stdin)
    return done.returncode, done.stdout, without_frames(done.stderr)


def conversations() -> list[bytes]:
    """What Java sent to each child, with answers for all that the observer asks."""
    first = json.dumps(INITIALIZE).encode() + b"\n"
    turns = count()
    made = []
    for name in names():
        sent = b""
        for one in load(name):
            if one.direction is Direction.TO_CHILD and b'"checkpoint"' not in one.line:
                sent += one.line + b"\n"
                asked = 0
                if b'"processRecords"' in one.line:
                    asked = (one.line.count(b'"record"') + 2) // 3 + 1
                elif b'"shardEnded"' in one.line or b'"shutdownRequested"' in one.line:
                    asked = 1
                for _ in range(asked):
                    refused = next(turns) % 5 == 4 and b'"shardEnded"' not in one.line
                    sent += ANSWER % (b'"ThrottlingException"' if refused else b"null")
        made.append(sent or first)
    return made


@pytest.mark.parametrize(
    "line",
    [
        b'{"action":"processRecords","records":[{"data":null}],"millisBehindLatest":0}\n',
        b'{"action":"processRecords","records":[],"millisBehindLatest":"\xff"}\n',
        b'{"action":"processRecords","records":[]}\n',
        b'{"action":"processRecords","records":[5],"millisBehindLatest":0}\n',
        b'{"action":"processRecords","records":[],"millisBehindLatest":0}x\n',
        b'{"action":"processRecords","records":[],',
        b"\xff\n",
        b"\n",
    ],
)
def test_a_line_that_is_no_message_ends_both_in_the_same_way(real, stand_in, line) -> None:
    sent = json.dumps(INITIALIZE).encode() + b"\n" + line
    ended = outcome(stand_in, OBSERVER, sent, "run")
    assert ended == outcome(real, OBSERVER, sent, "run")


def test_a_program_writes_the_same_bytes_in_each_recorded_conversation(real, stand_in) -> None:
    told = conversations()
    assert sum(one.count(b'"processRecords"') for one in told) > 20
    for sent in sorted(set(told), key=len)[::3]:
        assert outcome(stand_in, OBSERVER, sent, "run") == outcome(real, OBSERVER, sent, "run")


def test_the_sample_of_kclpy_writes_the_same_with_both(real, stand_in) -> None:
    sample = real / "samples" / "sample_kclpy_app.py"
    records = [{**RECORD, "subSequenceNumber": number} for number in range(3)]
    batch = {"action": "processRecords", "records": records, "millisBehindLatest": 0}
    said = [INITIALIZE, batch, "", {"action": "shutdownRequested"}, "", {"action": "leaseLost"}]
    sent = b"".join(
        json.dumps(one, separators=(",", ":")).encode() + b"\n" if one else ANSWER % b"null"
        for one in said
    )
    code, stdout, stderr = outcome(stand_in, sample, sent)
    assert (code, stdout, stderr) == outcome(real, sample, sent)
    assert stdout.count(b'"checkpoint"') == 2
    assert stderr.count(b"Data Size: 4") == 3
