"""Who waits for a program that makes keys and takes its time, and who does not."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import CredentialRetrievalError

from kcl_mld import errors
from kcl_mld.aws import credential_renewal, credentials as provided
from kcl_mld.aws.clients import Caller, make_client
from kcl_mld.aws.credentials import make_session, require_credentials
from kcl_mld.config.credentials import parse_chain
from kcl_mld.kernel.adapters.calls import CallPool
from tests.unit.aws.sessions import NOWHERE, PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: The first keys come at once, all others when the file "held" is gone; each request for them, and
#: each answer, is a line.
PROGRAM = """
import datetime as d, json, os, sys, time
here = sys.argv[1]
def note(what):
    with open(os.path.join(here, what), "a") as file:
        file.write("x\\n")
note("asked")
for _ in range(1200):
    if not os.path.exists(os.path.join(here, "held")):
        break
    time.sleep(0.1)
note("answered")
with open(os.path.join(here, "keys")) as file:
    key, minutes = file.read().split()
until = d.datetime.now(d.timezone.utc) + d.timedelta(minutes=float(minutes))
keys = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "geheim"}
print(json.dumps({**keys, "Expiration": until.isoformat()}))
"""


#: botocore asks once more for keys that are due when they come.
AT_THE_START = 2
ROLE = "arn:aws:iam::123456789012:role/reader"


class Program:
    """The operator's, with keys that are due at once, and what it is told."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._place.mkdir()
        (place / "program.py").write_text(PROGRAM)
        self.command = shlex.join(
            [sys.executable, "-I", "-S", str(place / "program.py"), str(place)]
        )
        self.makes("FIRST", 5)

    def makes(self, key: str, minutes: float) -> None:
        (self._place / "keys").write_text(f"{key} {minutes}")

    def hold(self) -> None:
        (self._place / "held").touch()

    def let_go(self) -> None:
        (self._place / "held").unlink(missing_ok=True)

    def times(self, what: str) -> int:
        file = self._place / what
        return len(file.read_text().split()) if file.exists() else 0


@pytest.fixture
def program(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    program = Program(tmp_path / "program")
    (tmp_path / "config").write_text(
        f"[default]\ncredential_process = {program.command}\n"
        f"[profile role]\nrole_arn = {ROLE}\nsource_profile = default\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    yield program
    program.let_go()


@pytest.fixture
def client(program: Program) -> Iterator[Any]:
    """Of keys that serve for five minutes, and are due."""
    chain, _ = parse_chain("DefaultCredentialsProvider")
    session = make_session(chain, "us-east-1")
    require_credentials(session, "AwsCredentialsProvider")
    with closing(make_client(session, NOWHERE)) as client:
        yield client


def eventually(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def credentials_of(client: Any) -> Any:
    return client._request_signer._credentials


def used_by(client: Any) -> str:
    return str(credentials_of(client).get_frozen_credentials().access_key)


def let_expire(client: Any) -> None:
    later = datetime.now(UTC) + timedelta(minutes=6)
    credentials_of(client).found._time_fetcher = lambda: later


def write(client: Any) -> errors.AwsError:
    """How a write to a port fails where nobody listens."""
    pool = CallPool("test", 1)
    try:
        with pytest.raises(errors.AwsError) as caught:
            asyncio.run(Caller(client, pool).write("put_item", {"TableName": "t", "Item": {}}))
    finally:
        pool.close()
    return caught.value


def test_no_request_waits_while_the_keys_serve_and_the_program_is_asked_once(
    program: Program, client: Any
) -> None:
    program.makes("SECOND", 60)
    program.hold()
    assert [write(client).code for _ in range(5)] == ["EndpointConnectionError"] * 5
    assert used_by(client) == "FIRST"
    assert program.times("answered") == AT_THE_START
    eventually(lambda: program.times("asked") == AT_THE_START + 1)
    program.let_go()
    eventually(lambda: used_by(client) == "SECOND")
    assert program.times("asked") == AT_THE_START + 1


def test_requests_wait_once_the_keys_have_expired(program: Program, client: Any) -> None:
    program.makes("SECOND", 60)
    program.hold()
    let_expire(client)
    used: list[str] = []
    requests = [threading.Thread(target=lambda: used.append(used_by(client))) for _ in range(3)]
    for one in requests:
        one.start()
    eventually(lambda: program.times("asked") == AT_THE_START + 1)
    assert used == []
    program.let_go()
    for one in requests:
        one.join(PATIENCE_S)
    assert used == ["SECOND"] * 3
    assert program.times("asked") == AT_THE_START + 1


def test_a_wait_for_keys_has_an_end_after_which_nothing_was_sent(
    program: Program, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_renewal, "WAIT_S", 0.1)
    program.hold()
    let_expire(client)
    for _ in range(3):
        error = write(client)
        assert type(error) is errors.Unreachable
        assert "credentials from custom-process: it has not answered for" in error.message
    assert program.times("answered") == AT_THE_START


def test_the_wait_for_keys_is_none_for_an_answer(
    program: Program, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that waited for longer than its answer may take is sent, and its outcome is known."""
    monkeypatch.setattr("kcl_mld.aws.clients.SILENCES", 0.05)
    program.makes("SECOND", 60)
    program.hold()
    let_expire(client)
    timer = threading.Timer(1.0, program.let_go)
    timer.start()
    error = write(client)
    timer.join()
    assert type(error) is errors.Unreachable
    assert error.code == "EndpointConnectionError"


def test_a_process_ends_while_a_program_still_makes_keys(program: Program) -> None:
    child = """
import sys
from kcl_mld.aws.credentials import make_session
from kcl_mld.config.credentials import parse_chain
from tests.unit.aws.sessions import PATIENCE_S
session = make_session(parse_chain("DefaultCredentialsProvider")[0], "us-east-1")
credentials = session.get_credentials()
open(sys.argv[1], "w").close()
print(credentials.get_frozen_credentials().access_key)
"""
    held = program._place / "held"
    arguments = [sys.executable, "-c", child, str(held)]
    ended = subprocess.run(arguments, capture_output=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout.split()) == (0, [b"FIRST"])
    assert program.times("answered") == AT_THE_START


@pytest.mark.parametrize(
    "chain",
    [
        "DefaultCredentialsProvider",
        "ProfileCredentialsProvider|default",
        f"StsAssumeRoleCredentialsProvider|{ROLE}|sess",
    ],
)
def test_a_program_that_does_not_end_has_no_keys(
    program: Program, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, chain: str
) -> None:
    monkeypatch.setattr(provided, "PROCESS_LIMIT_S", 0.2)
    program.hold()
    with pytest.raises(errors.CredentialsMissing) as caught:
        require_credentials(make_session(parse_chain(chain)[0], "us-east-1"), "key")
    said = f"{caught.value}{caplog.text}"
    assert f'the program "{sys.executable} ..." did not end within 0.2 s' in said
    assert "program.py" not in said  # an argument, as a password may be
    assert program.times("answered") == 0


def test_a_program_behind_a_role_that_does_not_end_has_no_keys(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_renewal, "WAIT_S", 0.2)
    program.hold()
    session = make_session(parse_chain("ProfileCredentialsProvider|role")[0], "us-east-1")
    with pytest.raises(errors.CredentialsMissing, match=r"no answer within 0\.2 s"):
        require_credentials(session, "key")
    assert program.times("answered") == 0


def test_a_program_that_does_not_end_is_named_and_asked_again(
    program: Program, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credential_renewal, "PAUSE_S", 0.0)
    program.makes("SECOND", 60)
    program.hold()
    let_expire(client)
    with monkeypatch.context() as hasty:
        hasty.setattr(provided, "PROCESS_LIMIT_S", 0.2)
        error = write(client)
    assert type(error) is errors.Unreachable
    assert f'the program "{sys.executable} ..." did not end within 0.2 s' in error.message
    program.let_go()
    assert used_by(client) == "SECOND"
    assert program.times("answered") == AT_THE_START + 1


@pytest.mark.parametrize("ends_itself", [True, False])
def test_a_program_is_not_waited_for_that_left_its_pipes_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, ends_itself: bool
) -> None:
    said = tmp_path / "said"
    script = f"sleep 600 & echo $! > {said}.new; mv {said}.new {said}; "
    arguments = ["sh", "-c", script if ends_itself else script + "wait"]
    pipe = subprocess.PIPE
    program = provided.LimitedProcess(arguments, stdout=pipe, stderr=pipe)
    eventually(said.exists)
    try:
        monkeypatch.setattr(provided, "PROCESS_LIMIT_S", 0.2)
        with pytest.raises(CredentialRetrievalError, match=r'the program "sh ..." did not end'):
            program.communicate()
        assert program.returncode is not None
    finally:
        os.kill(int(said.read_text()), signal.SIGKILL)
