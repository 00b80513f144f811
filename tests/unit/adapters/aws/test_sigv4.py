"""Signatures are those of botocore, and of the specification's own example of a key."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import ReadOnlyCredentials

from mld.adapters.aws.sigv4 import BodySigner

HEADERS = {
    "content-type": "application/x-amz-json-1.1",
    "host": "kinesis.eu-west-1.amazonaws.com",
    "x-amz-target": "Kinesis_20131202.GetRecords",
}
TIMESTAMP = "20261122T041339Z"


@dataclass(frozen=True)
class Keys:
    access_key: str = "AKIDEXAMPLE"
    secret_key: str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
    token: str | None = None


def by_botocore(keys: Keys, timestamp: str, headers: dict[str, str], body: bytes) -> str:
    credentials = ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token)
    auth = SigV4Auth(credentials, "kinesis", "eu-west-1")
    request = AWSRequest("POST", f"https://{headers['host']}/", headers, body)
    request.headers["X-Amz-Date"] = timestamp
    if keys.token:
        request.headers["X-Amz-Security-Token"] = keys.token
    request.context["timestamp"] = timestamp
    text = auth.string_to_sign(request, auth.canonical_request(request))
    names = auth.signed_headers(auth.headers_to_sign(request))
    return (
        f"AWS4-HMAC-SHA256 Credential={auth.scope(request)}, SignedHeaders={names}, "
        f"Signature={auth.signature(text, request)}"
    )


@pytest.mark.parametrize("token", [None, "IQoJb3JpZ2luX2VjE{date}//"])
@pytest.mark.parametrize("more", [{}, {"x-amz-user-agent": "a {body} } b"}])
@pytest.mark.parametrize("body", [b"{}", '{"a": "ü"}'.encode()])
def test_a_signature_is_that_of_botocore(
    token: str | None, more: dict[str, str], body: bytes
) -> None:
    headers = HEADERS | more
    signer = BodySigner("eu-west-1", "kinesis", headers)
    keys = Keys(token=token)
    expected = by_botocore(keys, TIMESTAMP, headers, body)
    assert signer.authorization(keys, TIMESTAMP, body) == expected


def test_a_new_day_and_a_new_secret_have_keys_of_their_own() -> None:
    signer = BodySigner("eu-west-1", "kinesis", HEADERS)
    first, second = Keys(), replace(Keys(), secret_key="other", token="t")
    for keys, timestamp in (
        (first, TIMESTAMP),
        (first, "20261123T000000Z"),
        (second, "20261123T000000Z"),
        (first, TIMESTAMP),
    ):
        expected = by_botocore(keys, timestamp, HEADERS, b"x")
        assert signer.authorization(keys, timestamp, b"x") == expected
