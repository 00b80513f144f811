"""AWS Signature Version 4 of requests that differ in their body alone.

botocore signs any request; for that it takes the request apart each time. Here everything but the
time and the body is known beforehand, and the key is derived once a day.

Source: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(Protocol):
    """What a signature needs; botocore's frozen credentials are such ones."""

    @property
    def access_key(self) -> str:
        """Its id."""

    @property
    def secret_key(self) -> str:
        """Never sent."""

    @property
    def token(self) -> str | None:
        """Of temporary credentials."""


class BodySigner:
    """Signs ``POST /`` with headers that stay the same.

    Args:
        region: of the credential scope; likewise ``service``, the signing name.
        headers: all that are signed, names in lower case, values trimmed, without ``x-amz-date``
            and ``x-amz-security-token``.
    """

    def __init__(self, region: str, service: str, headers: Mapping[str, str]) -> None:
        self._scope = f"{region}/{service}/aws4_request"
        self._key_path = (region, service, "aws4_request")
        without = {name: _escaped(value) for name, value in headers.items()}
        without["x-amz-date"] = "{date}"
        self._without_token = _canonical(without)
        self._with_token = _canonical(without | {"x-amz-security-token": "{token}"})
        self._derived = ("", "", b"")  # secret, day, key

    def authorization(self, credentials: Credentials, timestamp: str, body: bytes) -> str:
        """The header of that name.

        Args:
            credentials: their token must be sent as ``X-Amz-Security-Token``.
            timestamp: e.g. ``20261122T041339Z``, to be sent as ``X-Amz-Date``.
            body: as it will be sent.
        """
        token, day = credentials.token, timestamp[:8]
        names, text = self._with_token if token else self._without_token
        request = text.format(date=timestamp, token=token, body=hashlib.sha256(body).hexdigest())
        digest = hashlib.sha256(request.encode()).hexdigest()
        to_sign = f"{_ALGORITHM}\n{timestamp}\n{day}/{self._scope}\n{digest}"
        key = self._key(credentials.secret_key, day)
        signature = hmac.digest(key, to_sign.encode(), "sha256").hex()
        return (
            f"{_ALGORITHM} Credential={credentials.access_key}/{day}/{self._scope}, "
            f"SignedHeaders={names}, Signature={signature}"
        )

    def _key(self, secret: str, day: str) -> bytes:
        known_secret, known_day, key = self._derived
        if (known_secret, known_day) != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, *self._key_path):
                key = hmac.digest(key, part.encode(), "sha256")
            self._derived = (secret, day, key)
        return key


def _canonical(headers: Mapping[str, str]) -> tuple[str, str]:
    """Names of the signed headers, and the canonical request with places for what changes."""
    lines = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
    names = ";".join(sorted(headers))
    return names, f"POST\n/\n\n{lines}\n{names}\n{{body}}"


def _escaped(value: str) -> str:
    return value.replace("{", "{{").replace("}", "}}")
