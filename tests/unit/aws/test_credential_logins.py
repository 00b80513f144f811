"""SSO profiles: a login that is missing or has run out means no keys, and how to log in is said."""

from __future__ import annotations

import hashlib
import json
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest
from botocore.credentials import SSOProvider
from botocore.exceptions import CredentialRetrievalError
from botocore.tokens import SSOTokenProvider

from kcl_mld import errors
from kcl_mld.aws import credential_renewal
from kcl_mld.aws.credentials import make_session, require_credentials
from kcl_mld.config.credentials import parse_chain
from tests.fakes.http import Replies, served
from tests.unit.aws.sessions import renewals_end

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from botocore.session import Session

START_URL = "https://x.awsapps.com/start"
KEYS = "sso_account_id = 123456789012\nsso_role_name = reader\n"
CONFIG = f"""
[profile old]
sso_start_url = {START_URL}
sso_region = us-east-1
{KEYS}
[profile "new one"]
sso_session = corp
{KEYS}
[sso-session corp]
sso_start_url = {START_URL}
sso_region = us-east-1
[profile role]
role_arn = arn:aws:iam::123456789012:role/reader
source_profile = old
"""
LOGINS = {"old": "old", "new one": "'new one'", "role": "old"}


@pytest.fixture
def logins(machine: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ``aws sso login`` would keep its tokens."""
    (tmp_path / "config").write_text(CONFIG)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setattr(credential_renewal, "PAUSE_S", 0.0)
    place = tmp_path / "cache"
    place.mkdir()
    for provider in (SSOProvider, SSOTokenProvider):
        monkeypatch.setattr(provider, "_SSO_TOKEN_CACHE_DIR", str(place))
    return place


def log_in(logins: Path, minutes: float) -> None:
    until = (datetime.now(UTC) + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
    for name in (START_URL, "corp"):
        file = hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()
        token = {"accessToken": "geheim", "expiresAt": until}
        (logins / f"{file}.json").write_text(json.dumps(token))


def session(profile: str, monkeypatch: pytest.MonkeyPatch, *, by_file: bool) -> Session:
    if by_file:
        chain, _ = parse_chain(f"ProfileCredentialsProvider|{profile}")
    else:
        monkeypatch.setenv("AWS_PROFILE", profile)
        chain, _ = parse_chain("DefaultCredentialsProvider")
    return make_session(chain, "us-east-1")


@contextmanager
def answering(status: int, body: str, error: str | None = None) -> Iterator[str]:
    """A portal that answers everything the same."""

    class Portal(Replies, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(status, body.encode(), **({"x_amzn_ErrorType": error} if error else {}))

    with served(Portal) as url:
        yield url


def keys(minutes: float) -> str:
    until = (datetime.now(UTC) + timedelta(minutes=minutes)).timestamp() * 1000
    found = {"accessKeyId": "SSOKEY", "secretAccessKey": "geheim", "sessionToken": "t"}
    return json.dumps({"roleCredentials": {**found, "expiration": int(until)}})


@pytest.mark.parametrize("by_file", [True, False])
@pytest.mark.parametrize("token", ["none", "expired"])
@pytest.mark.parametrize("profile", LOGINS)
def test_no_login_at_the_start_means_no_credentials(
    logins: Path, monkeypatch: pytest.MonkeyPatch, profile: str, token: str, *, by_file: bool
) -> None:
    if token == "expired":
        log_in(logins, -1)
    with pytest.raises(errors.CredentialsMissing) as caught:
        require_credentials(session(profile, monkeypatch, by_file=by_file), "key")
    assert str(caught.value).endswith(f"Log in: aws sso login --profile {LOGINS[profile]}")
    assert "AWS_ACCESS_KEY_ID" not in str(caught.value)


@pytest.mark.parametrize("profile", ["old", "new one"])
def test_a_login_that_the_portal_refuses_means_no_credentials(
    logins: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    log_in(logins, 60)
    refusal = '{"message": "Session token not found or invalid"}'
    with answering(401, refusal, "UnauthorizedException") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", url)
        with pytest.raises(errors.CredentialsMissing, match="aws sso login --profile"):
            require_credentials(session(profile, monkeypatch, by_file=True), "key")


@pytest.mark.parametrize("profile", ["old", "role"])
def test_a_portal_that_is_not_reached_is_asked_again_with_the_first_requests(
    logins: Path, monkeypatch: pytest.MonkeyPatch, profile: str, caplog: pytest.LogCaptureFixture
) -> None:
    log_in(logins, 60)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", "http://127.0.0.1:9")
    made = session(profile, monkeypatch, by_file=True)
    require_credentials(made, "key")
    method = "sso" if profile == "old" else "assume-role"
    assert f"No credentials received from {method}: Could not connect" in caplog.text
    assert "old ones" not in caplog.text


@pytest.mark.parametrize("profile", ["old", "new one"])
def test_a_login_that_runs_out_is_one_of_the_credentials_until_there_is_another(
    logins: Path, monkeypatch: pytest.MonkeyPatch, profile: str
) -> None:
    log_in(logins, 60)
    with answering(200, keys(5)) as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", url)
        made = session(profile, monkeypatch, by_file=True)
        require_credentials(made, "key")
        credentials: Any = made.get_credentials()
        log_in(logins, -1)
        renewals_end()
        assert credentials.get_frozen_credentials().access_key == "SSOKEY"
        renewals_end()
        credentials.found._time_fetcher = lambda: datetime.now(UTC) + timedelta(minutes=6)
        with pytest.raises(CredentialRetrievalError, match=r"from sso: .* Log in: aws sso login"):
            credentials.get_frozen_credentials()
        renewals_end()
        credentials.found._time_fetcher = lambda: datetime.now(UTC)
        log_in(logins, 60)
        assert credentials.get_frozen_credentials().access_key == "SSOKEY"
