"""Keys that a program of the operator makes: whatever it prints, the worker is told plainly."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld import errors
from kcl_mld.aws import credential_renewal
from kcl_mld.aws.clients import make_client
from kcl_mld.aws.credentials import make_session, require_credentials
from kcl_mld.aws.dynamodb import BotocoreDynamoDb
from kcl_mld.config.credentials import parse_chain
from kcl_mld.kernel.adapters.calls import CallPool
from tests.unit.aws.sessions import NOWHERE, renewals_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from botocore.session import Session

pytestmark = pytest.mark.usefixtures("machine")

KEYS = {"Version": 1, "AccessKeyId": "PROCESSKEY", "SecretAccessKey": "geheim"}
#: Closer than botocore's ten minutes: they are asked for again with every request.
SHORT_LIVED = "import datetime as d; until = d.datetime.now(d.UTC) + d.timedelta(minutes=5)"


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the process prints; ``UNTIL`` in it is in five minutes."""
    said, program = tmp_path / "answer", tmp_path / "keys.py"
    program.write_text(
        f"{SHORT_LIVED}\nprint(open({str(said)!r}).read().replace('UNTIL', until.isoformat()))\n"
    )
    command = shlex.join([sys.executable, "-I", "-S", str(program)])
    (tmp_path / "config").write_text(f"[default]\ncredential_process = {command}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return said


def session() -> Session:
    chain, _ = parse_chain("DefaultCredentialsProvider")
    return make_session(chain, "us-east-1")


def code_of_a_call(client: Any) -> str:
    """How it fails to get an item of a table on a port where nobody listens.

    Nobody asks for keys any more then, so that the next one begins with what it left.
    """
    pool = CallPool("test", 1)
    try:
        with pytest.raises(errors.Unreachable) as caught:
            asyncio.run(BotocoreDynamoDb(client, pool).get_item(TableName="t", Key={}))
    finally:
        pool.close()
        renewals_end()
    assert "geheim" not in str(caught.value)
    return caught.value.code


BROKEN = [
    "hello",
    "",
    "[1]",
    "null",
    '"keys"',
    json.dumps({**KEYS, "Expiration": 5}),
    json.dumps({**KEYS, "Expiration": "soon"}),
]


@pytest.mark.parametrize("said", BROKEN)
def test_an_answer_that_makes_no_sense_at_the_start_means_no_credentials(
    answer: Path, caplog: pytest.LogCaptureFixture, said: str
) -> None:
    answer.write_text(said)
    expected = "by DefaultCredentialsProvider: its answer"
    with pytest.raises(errors.CredentialsMissing, match=expected) as raised:
        require_credentials(session(), "AwsCredentialsProvider")
    assert "DefaultCredentialsProvider" not in caplog.text  # it is said once
    assert "geheim" not in caplog.text + str(raised.value)


LONG = "2199-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"AccessKeyId": None}, "access key is null"),
        ({"AccessKeyId": ""}, "access key is empty"),
        ({"SecretAccessKey": None}, "secret key is null"),
        ({"AccessKeyId": None, "Expiration": LONG}, "access key is null"),
        ({"SecretAccessKey": "", "Expiration": "UNTIL"}, "secret key is empty"),
        ({"Expiration": "2001-01-01T00:00:00Z"}, "still expired"),
        ({"Expiration": "2001-01-01T00:00:00"}, "can't be read: TypeError"),
    ],
)
def test_keys_of_no_use_at_the_start_mean_no_credentials(
    answer: Path, caplog: pytest.LogCaptureFixture, said: dict[str, Any], why: str
) -> None:
    answer.write_text(json.dumps({**KEYS, **said}))
    with pytest.raises(errors.CredentialsMissing, match=f"DefaultCredentialsProvider: .*{why}"):
        require_credentials(session(), "AwsCredentialsProvider")
    assert "geheim" not in caplog.text


@pytest.fixture
def client(answer: Path) -> Iterator[Any]:
    """Of keys that have to be renewed with the next call."""
    answer.write_text(json.dumps({**KEYS, "Expiration": "UNTIL"}))
    made = session()
    require_credentials(made, "AwsCredentialsProvider")
    client = make_client(made, NOWHERE)
    yield client
    client.close()


@pytest.mark.parametrize(
    "said",
    [
        *BROKEN,
        json.dumps({**KEYS, "Expiration": "2001-01-01T00:00:00Z"}),
        json.dumps({**KEYS, "Expiration": "2001-01-01T00:00:00"}),
    ],
)
def test_keys_that_expired_and_cannot_be_renewed_are_trouble_on_the_way_until_they_can(
    answer: Path, client: Any, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(credential_renewal, "PAUSE_S", 0.0)
    later = datetime.now(UTC) + timedelta(minutes=6)
    client._request_signer._credentials.found._time_fetcher = lambda: later
    answer.write_text(said)
    assert code_of_a_call(client) == "CredentialRetrievalError"
    answer.write_text(json.dumps({**KEYS, "Expiration": "2199-01-01T00:00:00Z"}))
    assert code_of_a_call(client) == "EndpointConnectionError"


#: Of the right form, and of no use.
USELESS = [
    json.dumps({**KEYS, "Expiration": "2001-01-01T00:00:00Z"}),
    json.dumps({**KEYS, "Expiration": "UNTIL", "AccessKeyId": None}),
    json.dumps({**KEYS, "Expiration": "UNTIL", "AccessKeyId": ""}),
    json.dumps({**KEYS, "Expiration": "UNTIL", "AccessKeyId": "NEW", "SecretAccessKey": None}),
    json.dumps({**KEYS, "Expiration": "UNTIL", "AccessKeyId": "NEW", "SecretAccessKey": ""}),
]


@pytest.mark.parametrize("said", [*BROKEN, *USELESS])
def test_keys_that_are_still_good_serve_while_they_cannot_be_renewed(
    answer: Path,
    client: Any,
    said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answer.write_text(said)
    assert code_of_a_call(client) == "EndpointConnectionError"
    used = client._request_signer._credentials.get_frozen_credentials()
    assert used.access_key == "PROCESSKEY"
    assert used.secret_key == KEYS["SecretAccessKey"]
    assert "No new credentials received from custom-process" in caplog.text
    assert "geheim" not in caplog.text
