"""Chains become botocore sessions that sign with the right keys, and no log shows a secret."""

import logging
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs

import pytest
from botocore.exceptions import ClientError

from kcl_mld.aws.credentials import AwsSessions, make_session, require_credentials
from kcl_mld.config.credentials import parse_chain
from kcl_mld.errors import ConfigError, CredentialsMissing
from kcl_mld.signals.adapters.output.logs import JsonFormatter
from tests.fakes.http import Replies, served

pytestmark = pytest.mark.usefixtures("machine")

ROLE = "arn:aws:iam::123456789012:role/reader"
ENV_SECRET = "env-secret-geheim"
ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>role-secret-geheim</SecretAccessKey>
<SessionToken>role-token-geheim</SessionToken><Expiration>2199-01-01T00:00:00Z</Expiration>
</Credentials><AssumedRoleUser><Arn>arn:aws:sts::123456789012:assumed-role/reader/sess</Arn>
<AssumedRoleId>A:sess</AssumedRoleId></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"""


@pytest.fixture
def environment_keys(machine, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ENV_SECRET)


@pytest.fixture
def nobody(machine, monkeypatch, tmp_path):
    """No profiles either."""
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def session(value, region="us-east-1"):
    chain, _ = parse_chain(value)
    return make_session(chain, region)


def access_key(value):
    credentials = session(value).get_credentials()
    return credentials and credentials.access_key


@pytest.mark.usefixtures("environment_keys")
@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("DefaultCredentialsProvider", "ENVKEY"),
        ("EnvironmentVariableCredentialsProvider", "ENVKEY"),
        ("ProfileCredentialsProvider", "DEFAULTKEY"),
        ("ProfileCredentialsProvider|dev", "DEVKEY"),
        ("ProfileCredentialsProvider|dev|x", "DEFAULTKEY"),
        ("ProfileCredentialsProvider|nobody", None),
        ("ProfileCredentialsProvider|nobody, EnvironmentVariableCredentialsProvider", "ENVKEY"),
        ("Unknown, ProfileCredentialsProvider|dev", "DEVKEY"),
        ("ContainerCredentialsProvider", None),
        ("WebIdentityTokenFileCredentialsProvider", None),
        ("InstanceProfileCredentialsProvider", None),
        ("InstanceProfileCredentialsProvider, DefaultCredentialsProvider", "ENVKEY"),
    ],
)
def test_the_first_provider_with_keys_signs(value, key):
    assert access_key(value) == key


def test_the_default_chain_falls_back_to_the_profile():
    assert access_key("EnvironmentVariableCredentialsProvider") is None
    assert access_key("DefaultCredentialsProvider") == "DEFAULTKEY"


def test_the_profile_of_the_environment_is_the_default_profile(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "dev")
    assert access_key("ProfileCredentialsProvider") == "DEVKEY"
    assert access_key("DefaultCredentialsProvider") == "DEVKEY"


def test_half_a_key_in_the_environment_is_passed_over(monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
    value = "EnvironmentVariableCredentialsProvider, ProfileCredentialsProvider|dev"
    assert access_key(value) == "DEVKEY"


def test_anonymous_clients_sign_nothing():
    anonymous = session("AnonymousCredentialsProvider")
    require_credentials(anonymous, "AwsCredentialsProvider")
    with server() as (url, requests):
        client = anonymous.create_client("sts", region_name="us-east-1", endpoint_url=url)
        client.assume_role(RoleArn=ROLE, RoleSessionName="sess")
    assert "Authorization" not in requests[0][0]


@pytest.mark.usefixtures("environment_keys")
def test_anonymous_counts_only_when_nothing_before_it_has_keys():
    value = "EnvironmentVariableCredentialsProvider, AnonymousCredentialsProvider"
    assert access_key(value) == "ENVKEY"
    value = "ProfileCredentialsProvider|nobody, AnonymousCredentialsProvider"
    assert session(value).get_component("credential_provider").is_anonymous()


@pytest.mark.usefixtures("nobody")
def test_a_chain_without_keys_is_named():
    with pytest.raises(CredentialsMissing, match="AwsCredentialsProvider: no credentials found by"):
        require_credentials(session("DefaultCredentialsProvider"), "AwsCredentialsProvider")


@pytest.mark.usefixtures("environment_keys")
def test_a_chain_with_keys_passes():
    require_credentials(session("DefaultCredentialsProvider"), "AwsCredentialsProvider")


# --- assumed roles


@contextmanager
def server(status=200, body=ANSWER):
    """An STS that answers everything the same and keeps (headers, form) of each request."""
    requests = []

    class Sts(Replies, BaseHTTPRequestHandler):
        def do_POST(self):
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            requests.append((dict(self.headers), parse_qs(form)))
            self.reply(status, body.encode())

    with served(Sts) as url:
        yield url, requests


@pytest.mark.usefixtures("environment_keys")
def test_a_role_is_assumed_with_everything_that_the_file_names():
    with server() as (url, requests):
        value = (
            f"StsAssumeRoleCredentialsProvider|{ROLE}|sess|endpoint={url}^eu-west-1"
            "|externalId=ext-geheim"
        )
        credentials = session(value).get_credentials()
        assert (credentials.access_key, credentials.token) == ("ROLEKEY", "role-token-geheim")
    headers, form = requests[0]
    assert form["RoleArn"] == [ROLE]
    assert form["RoleSessionName"] == ["sess"]
    assert form["ExternalId"] == ["ext-geheim"]
    assert "Credential=ENVKEY/" in headers["Authorization"]
    assert "/eu-west-1/sts/" in headers["Authorization"]


@pytest.mark.usefixtures("environment_keys")
def test_a_role_without_a_region_of_its_own_uses_the_common_one(monkeypatch):
    with server() as (url, requests):
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        assert access_key(f"StsAssumeRoleCredentialsProvider|{ROLE}|sess") == "ROLEKEY"
        value = f"StsAssumeRoleCredentialsProvider|{ROLE}|sess|endpointRegion=ap-south-1"
        assert access_key(value) == "ROLEKEY"
    assert "/us-east-1/sts/" in requests[0][0]["Authorization"]
    assert "/ap-south-1/sts/" in requests[1][0]["Authorization"]
    assert "ExternalId" not in requests[0][1]


def test_a_role_without_any_region_is_a_configuration_error():
    with pytest.raises(ConfigError, match="no region for STS is known"):
        session(f"StsAssumeRoleCredentialsProvider|{ROLE}|sess", region=None)


@pytest.mark.usefixtures("nobody")
def test_a_role_without_base_credentials_has_none():
    assert access_key(f"StsAssumeRoleCredentialsProvider|{ROLE}|sess") is None


@pytest.mark.usefixtures("environment_keys")
def test_a_refused_role_is_passed_over_and_logged_without_secrets(caplog):
    refusal = (
        "<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
        "<Message>not allowed</Message></Error></ErrorResponse>"
    )
    caplog.set_level(logging.INFO)
    with server(403, refusal) as (url, _):
        value = (
            f"StsAssumeRoleCredentialsProvider|{ROLE}|sess|endpoint={url}^eu-west-1"
            "|externalId=ext-geheim, ProfileCredentialsProvider|dev"
        )
        assert access_key(value) == "DEVKEY"
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert any("AccessDenied" in line for line in lines)
    assert any("using credentials of ProfileCredentialsProvider|dev" in line for line in lines)
    assert not any("geheim" in line for line in lines)


@pytest.mark.usefixtures("environment_keys")
def test_neither_logs_nor_representations_show_a_secret(caplog):
    caplog.set_level(logging.DEBUG, "mld")
    with server() as (url, _):
        value = (
            f"StsAssumeRoleCredentialsProvider|{ROLE}|sess|endpoint={url}^eu-west-1"
            "|externalId=ext-geheim"
        )
        one = session(value)
        require_credentials(one, "AwsCredentialsProvider")
        require_credentials(session("ProfileCredentialsProvider|dev"), "AwsCredentialsProvider")
        require_credentials(session("DefaultCredentialsProvider"), "AwsCredentialsProvider")
    shown = "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("mld")
    )
    shown += str(one.get_component("credential_provider"))
    assert "using credentials of" in shown
    assert "geheim" not in shown


@pytest.mark.usefixtures("environment_keys")
def test_a_role_whose_keys_are_expired_on_arrival_is_passed_over():
    body = ANSWER.replace("2199", "2001")
    with server(body=body) as (url, requests):
        value = f"StsAssumeRoleCredentialsProvider|{ROLE}|sess|endpoint={url}^eu-west-1"
        assert session(value).get_credentials() is None
        assert requests


def test_a_failing_call_of_a_client_is_not_swallowed(environment_keys):
    with server(403, "<ErrorResponse><Error><Code>No</Code></Error></ErrorResponse>") as (url, _):
        client = session("DefaultCredentialsProvider").create_client("sts", endpoint_url=url)
        with pytest.raises(ClientError):
            client.assume_role(RoleArn=ROLE, RoleSessionName="sess")


@pytest.mark.usefixtures("environment_keys")
def test_clients_of_one_chain_share_its_session():
    sessions = AwsSessions("us-east-1")
    default, _ = parse_chain("DefaultCredentialsProvider")
    again, _ = parse_chain("DefaultCredentialsProvider")
    profile, _ = parse_chain("ProfileCredentialsProvider|dev")
    assert sessions.of(default) is sessions.of(again)
    assert sessions.of(profile) is not sessions.of(default)


# --- regions


def test_the_chain_of_a_profile_that_does_not_exist_is_a_configuration_error(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match="nobody"):
        session("EnvironmentVariableCredentialsProvider")
