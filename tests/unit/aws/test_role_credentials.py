"""Roles that STS gives or refuses, and the keys with which they are assumed."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld import errors
from kcl_mld.aws import credential_renewal
from kcl_mld.aws.clients import make_client
from kcl_mld.aws.credentials import make_session
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.config.credentials import parse_chain
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.signals.rules.remedies import table_remedy
from tests.fakes.http import Replies, served
from tests.unit.aws.sessions import NOWHERE, renewals_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from botocore.client import BaseClient

ROLE = "arn:aws:iam::123456789012:role/reader"
SECOND = "arn:aws:iam::123456789012:role/second"
#: The ways to a role: of the properties file, of a profile, and of one after the other.
WAYS = BY_FILE, BY_PROFILE, BY_TWO = "the file", "a profile", "two roles"


class Sts:
    """Answers AssumeRole; by whose keys it was asked is kept."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.code = "AccessDenied"
        self.key = "ROLEKEY"
        self.until = datetime.now(UTC) + timedelta(minutes=5)
        self.asked_by: list[str] = []

    def answer(self) -> str:
        if self.status != 200:
            error = f"<Code>{self.code}</Code><Message>no</Message>"
            return f"<ErrorResponse><Error>{error}</Error></ErrorResponse>"
        keys = (
            f"<AccessKeyId>{self.key}</AccessKeyId><SecretAccessKey>geheim</SecretAccessKey>"
            f"<SessionToken>t</SessionToken><Expiration>{self.until.isoformat()}</Expiration>"
        )
        return (
            f"<AssumeRoleResponse><AssumeRoleResult><Credentials>{keys}</Credentials>"
            "</AssumeRoleResult></AssumeRoleResponse>"
        )


@contextmanager
def answering(sts: Sts) -> Iterator[None]:
    class Answers(Replies, BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            signed = self.headers["Authorization"]
            sts.asked_by.append(signed.partition("Credential=")[2].partition("/")[0])
            self.reply(sts.status, sts.answer().encode())

    with served(Answers) as sts.url:
        yield


@pytest.fixture
def sts(machine: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sts]:
    sts = Sts()
    monkeypatch.setattr(credential_renewal, "PAUSE_S", 0.0)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with answering(sts):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        yield sts


@pytest.fixture
def source(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the process prints that makes the keys with which the role is assumed."""
    said, program = tmp_path / "answer", tmp_path / "keys.py"
    program.write_text(f"print(open({str(said)!r}).read())\n")
    command = shlex.join([sys.executable, "-I", "-S", str(program)])
    (tmp_path / "config").write_text(
        f"[default]\ncredential_process = {command}\n"
        f"[profile role]\nrole_arn = {ROLE}\nsource_profile = default\n"
        f"[profile second]\nrole_arn = {SECOND}\nsource_profile = role\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    source_says(said, "SOURCE", timedelta(minutes=5))
    return said


def source_says(said: Path, key: str | None, lives: timedelta) -> None:
    until = (datetime.now(UTC) + lives).isoformat()
    keys = {"Version": 1, "AccessKeyId": key, "SecretAccessKey": "geheim", "Expiration": until}
    said.write_text(json.dumps(keys))


def role_client(way: str, monkeypatch: pytest.MonkeyPatch) -> BaseClient:
    if way != BY_FILE:
        monkeypatch.setenv("AWS_PROFILE", "role" if way == BY_PROFILE else "second")
        chain, _ = parse_chain("DefaultCredentialsProvider")
    else:
        chain, _ = parse_chain(f"StsAssumeRoleCredentialsProvider|{ROLE}|sess")
    return make_client(make_session(chain, "us-east-1"), NOWHERE)


def failure_of_a_call(client: Any) -> errors.AwsError:
    """How it fails to write to a table on a port where nobody listens.

    Nobody asks for keys any more then, so that the next one begins with what it left.
    """
    pool = CallPool("test", 1)
    try:
        with pytest.raises(errors.AwsError) as caught:
            asyncio.run(BotocoreDynamoDb(client, pool).put_item(TableName="t", Item={}))
    finally:
        pool.close()
        renewals_end()
    assert "geheim" not in str(caught.value)
    return caught.value


def in_six_minutes() -> datetime:
    return datetime.now(UTC) + timedelta(minutes=6)


def let_expire(client: Any) -> None:
    """From now on the keys of the role, not those of its source, are seen as expired."""
    client._request_signer._credentials.found._time_fetcher = in_six_minutes


def let_expire_at_the_source(client: Any) -> None:
    """The same for the keys that the process has made; a profile's are asked for anew anyway."""
    role = client._request_signer._credentials.found
    role._refresh_using.__self__._source_credentials.found._time_fetcher = in_six_minutes


REFUSALS = {
    "AccessDenied": "Allow sts:AssumeRole",
    "ExpiredToken": "Renew the keys or the token with which the role is assumed",
    "InvalidClientTokenId": "Renew the keys or the token with which the role is assumed",
    "SomethingElse": "SomethingElse",
}


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("code", REFUSALS)
@pytest.mark.parametrize("way", WAYS)
def test_a_refusal_of_sts_is_one_of_the_credentials_and_not_of_the_table(
    sts: Sts, monkeypatch: pytest.MonkeyPatch, way: str, code: str
) -> None:
    with closing(role_client(way, monkeypatch)) as client:
        assert failure_of_a_call(client).code == "EndpointConnectionError"
        let_expire(client)
        sts.status, sts.code = 403, code
        error = failure_of_a_call(client)
    assert type(error) is errors.Unreachable
    assert error.code == "CredentialRetrievalError"
    assert "credentials from assume-role" in error.message
    assert code in error.message
    assert REFUSALS[code] in error.message
    assert "dynamodb" not in f"{error}{table_remedy(error)}"


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("way", WAYS)
def test_an_sts_that_fails_or_is_away_leaves_no_outcome_unknown(
    sts: Sts, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with closing(role_client(way, monkeypatch)) as client:
        failure_of_a_call(client)
        let_expire(client)
        sts.status, sts.code = 400, "IDPCommunicationError"
        error = failure_of_a_call(client)
        assert type(error) is errors.Unreachable
        assert error.code == "CredentialRetrievalError"
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9")
        error = failure_of_a_call(client)
    assert type(error) is errors.Unreachable
    assert error.code == "CredentialRetrievalError"
    assert "127.0.0.1:9" in error.message


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("way", WAYS)
def test_keys_of_no_use_from_sts_are_not_remembered(
    sts: Sts, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with closing(role_client(way, monkeypatch)) as client:
        failure_of_a_call(client)
        let_expire(client)
        sts.key, sts.until = "", datetime.now(UTC) + timedelta(hours=1)
        assert "access key is" in failure_of_a_call(client).message
        sts.key = "ROLEKEY2"
        assert failure_of_a_call(client).code == "EndpointConnectionError"
        used: Any = client._request_signer._credentials.get_frozen_credentials()
    assert used.access_key == "ROLEKEY2"


@pytest.mark.parametrize("said", ["hello", "null key", "expired"])
def test_the_keys_that_assume_a_role_serve_until_they_expire(
    sts: Sts, source: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    with closing(role_client(BY_FILE, monkeypatch)) as client:
        failure_of_a_call(client)
        before = len(sts.asked_by)
        if said == "hello":
            source.write_text("hello")
        elif said == "expired":
            source_says(source, "NEW", timedelta(minutes=-1))
        else:
            source_says(source, None, timedelta(hours=1))
        let_expire(client)
        sts.until = datetime.now(UTC) + timedelta(hours=1)
        assert failure_of_a_call(client).code == "EndpointConnectionError"
    assert len(sts.asked_by) > before
    assert set(sts.asked_by) == {"SOURCE"}


@pytest.mark.parametrize("way", WAYS)
def test_keys_that_assume_a_role_and_cannot_be_renewed_are_named(
    sts: Sts, source: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    with closing(role_client(way, monkeypatch)) as client:
        failure_of_a_call(client)
        source.write_text("hello")
        let_expire(client)
        if way == BY_FILE:
            let_expire_at_the_source(client)
        sts.until = datetime.now(UTC) + timedelta(hours=1)
        error = failure_of_a_call(client)
    assert type(error) is errors.Unreachable
    assert error.code == "CredentialRetrievalError"
    assert "credentials from assume-role" in error.message
    assert "its answer or a setting of it can't be read" in error.message


@pytest.mark.parametrize("way", WAYS)
def test_keys_of_no_use_at_the_start_assume_no_role(
    sts: Sts, source: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    source_says(source, None, timedelta(hours=1))
    with closing(role_client(way, monkeypatch)) as client:
        error = failure_of_a_call(client)
    assert type(error) is errors.Unreachable
    assert error.code == "NoCredentialsError"
    assert sts.asked_by == []
