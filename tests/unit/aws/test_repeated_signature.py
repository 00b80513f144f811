"""Signatures that are made again without botocore are those that botocore would have made."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.exceptions import NoCredentialsError

from kcl_mld.aws.prepared import RepeatedSignature, RequestTemplate
from kcl_mld.aws.service_clock import signing_stamp
from tests.unit.aws.sessions import quick_session

if TYPE_CHECKING:
    from botocore.awsrequest import AWSRequest

URL = "https://kinesis.eu-west-1.amazonaws.com/"
FIXED = {
    "X-Amz-Target": "Kinesis_20131202.GetRecords",
    "Content-Type": "application/x-amz-json-1.1",
    "User-Agent": "Boto3/1  md/x",
    "amz-sdk-request": "attempt=1",
}
NOON_S = 1_767_268_800.0  # 2026-01-01T12:00:00Z


class Requests:
    """One template, its credentials, and how often botocore signed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, url: str = URL) -> None:
        session = quick_session("secret/+ü", "token==")
        self.credentials: Any = session.get_credentials()
        client = session.create_client("kinesis", region_name="eu-west-1")
        self.signer: Any = client._request_signer
        self.template = RequestTemplate(url, FIXED, self.signer, "kinesis", "eu-west-1")
        self.now_s = NOON_S
        self.by_botocore = 0
        own = SigV4Auth.add_auth

        def counted(auth: SigV4Auth, request: AWSRequest) -> None:
            self.by_botocore += 1
            own(auth, request)

        monkeypatch.setattr(SigV4Auth, "add_auth", counted)
        monkeypatch.setattr(
            botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(self.now_s, UTC)
        )

    def next(self, body: bytes) -> bytes:
        """The next one, as it goes over the wire."""
        return self.template.text(
            self.template.changing_headers(body, "id", signing_stamp(self.now_s)), body
        )

    def by_botocore_alone(self, body: bytes) -> bytes:
        """The same, whole from botocore."""
        fresh = RequestTemplate(self.template.url, FIXED, self.signer, "kinesis", "eu-west-1")
        before = self.by_botocore
        text = fresh.text(fresh.changing_headers(body, "id", signing_stamp(self.now_s)), body)
        assert self.by_botocore == before + 1
        self.by_botocore = before
        return text


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)


BODIES = (b"{}", b"", '{"a":"ü"}'.encode(), b"x" * 100_000)


@pytest.mark.parametrize(
    "url", [URL, "http://127.0.0.1:4567/", "http://[::1]:4567", "https://h:443/"]
)
def test_later_requests_are_to_the_letter_those_of_botocore(
    monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    requests = Requests(monkeypatch, url)
    for body in BODIES:
        requests.now_s += 1
        assert requests.next(body) == requests.by_botocore_alone(body)
    assert requests.by_botocore == 1


def test_each_day_begins_with_a_signature_of_botocore(requests: Requests) -> None:
    requests.next(b"{}")
    requests.now_s += 12 * 3600 - 1
    assert requests.next(b"{}") == requests.by_botocore_alone(b"{}")
    assert requests.by_botocore == 1
    requests.now_s += 1
    assert requests.next(b"{}") == requests.by_botocore_alone(b"{}")
    assert requests.by_botocore == 2
    requests.next(b"{}")
    assert requests.by_botocore == 2


def test_a_clock_that_steps_back_over_midnight_is_followed(requests: Requests) -> None:
    requests.next(b"{}")
    requests.now_s -= 24 * 3600
    assert requests.next(b"{}") == requests.by_botocore_alone(b"{}")
    assert requests.by_botocore == 2


@pytest.mark.parametrize("part", ["access_key", "secret_key", "token"])
def test_other_credentials_begin_with_a_signature_of_botocore(
    requests: Requests, part: str
) -> None:
    requests.next(b"{}")
    setattr(requests.credentials, part, "another")
    assert requests.next(b"{}") == requests.by_botocore_alone(b"{}")
    assert requests.next(b"{}") == requests.by_botocore_alone(b"{}")
    assert requests.by_botocore == 2


def test_without_credentials_nothing_is_signed(requests: Requests) -> None:
    requests.next(b"{}")
    requests.signer._credentials = None
    with pytest.raises(NoCredentialsError):
        requests.next(b"{}")


def test_a_botocore_that_signs_in_another_way_signs_all(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: Any = SigV4Auth.signature
    monkeypatch.setattr(SigV4Auth, "signature", lambda *given: own(*given)[::-1])
    for _ in range(2):
        assert requests.next(b"{}") == requests.by_botocore_alone(b"{}")
    assert requests.by_botocore == 2


def test_another_kind_of_signer_signs_all(
    requests: Requests, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(SigV4Auth):
        pass

    monkeypatch.setitem(botocore.auth.AUTH_TYPE_MAPS, "v4", Other)
    for _ in range(2):
        requests.next(b"{}")
    assert requests.by_botocore == 2


@pytest.mark.parametrize(
    "claim",
    [
        "",
        "AWS4-HMAC-SHA256 Credential=AKID/20260101/r/s/aws4_request, SignedHeaders=host, Signature=0",
        (
            "AWS4-HMAC-SHA256 Credential=AKID/20260101/r/s/aws4_request, "
            "SignedHeaders=host;x-amz-date;x-gone, Signature=0"
        ),
        "AWS4-HMAC-SHA256 Credential=AKID, SignedHeaders=host;x-amz-date, Signature=0",
    ],
)
def test_a_claim_of_another_form_is_not_repeated(claim: str) -> None:
    signed = {"Authorization": claim, "X-Amz-Date": "20260101T120000Z"}
    credentials: Any = botocore.credentials.ReadOnlyCredentials("AKID", "secret", None)
    assert RepeatedSignature.like(signed, b"", "h", credentials) is None
