"""What stays the same in the requests of one operation, and what is filled in for each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from botocore.exceptions import NoCredentialsError

from mld.adapters.aws.sigv4 import BodySigner

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.awsrequest import AWSPreparedRequest

    from mld.adapters.aws.sigv4 import Credentials

_JSON = "application/x-amz-json-"
#: Headers that a template may have. With any other one there is none: it could be about one body.
_FIXED = {"amz-sdk-request", "content-type", "user-agent", "x-amz-target", "x-amz-user-agent"}
_CHANGING = {
    "amz-sdk-invocation-id",
    "authorization",
    "content-length",
    "x-amz-date",
    "x-amz-security-token",
}


class RequestTemplate:
    """``POST /`` to one URL.

    Attributes:
        url: as botocore resolved it.
        fixed: headers that every request has.
    """

    def __init__(
        self, url: str, fixed: Mapping[str, str], signer: Any, signing_name: str, region: str
    ) -> None:
        """See :meth:`of`."""
        self.url = url
        self.fixed = dict(fixed)
        self._signer = (signer, signing_name, region)
        host = _host(url)
        signed = {"content-type", "x-amz-target", "x-amz-user-agent"}
        values = {
            name.lower(): " ".join(value.split())
            for name, value in fixed.items()
            if name.lower() in signed
        }
        self._body_signer = BodySigner(region, signing_name, values | {"host": host})
        lines = {"Host": host, "Accept-Encoding": "identity"} | self.fixed
        self._head = "POST / HTTP/1.1\r\n" + _lines(lines)

    @classmethod
    def of(
        cls, request: AWSPreparedRequest, signer: Any, signing_name: str, region: str
    ) -> Self | None:
        """What a request that is about to be sent has in common with later ones.

        Args:
            request: signed; its body is bytes.
            signer: botocore's, the source of credentials.
            signing_name: of the service, e.g. ``kinesis``.
            region: of the signature.

        Returns:
            None when the request is unusual, or botocore signed it otherwise than we would.
        """
        headers = {name: _text(value) for name, value in request.headers.items()}
        lower = {name.lower(): value for name, value in headers.items()}
        target = urlsplit(request.url)
        is_usual = (
            request.method == "POST"
            and (target.path or "/", target.query) == ("/", "")
            and lower.get("content-type", "").startswith(_JSON)
            and lower.keys() <= _FIXED | _CHANGING
        )
        if not is_usual:
            return None
        fixed = {name: value for name, value in headers.items() if name.lower() in _FIXED}
        template = cls(request.url, fixed, signer, signing_name, region)
        expected = template.authorization(lower.get("x-amz-date", ""), request.body)
        return template if lower.get("authorization") == expected else None

    def authorization(self, timestamp: str, body: bytes) -> str:
        """The signature by the credentials that are valid now."""
        return self._body_signer.authorization(self._credentials(), timestamp, body)

    def changing_headers(self, body: bytes, request_id: str) -> dict[str, str]:
        """The headers of one request beside the fixed ones.

        Raises:
            NoCredentialsError: there are none any more.
        """
        credentials = self._credentials()
        timestamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        headers = {
            "X-Amz-Date": timestamp,
            "Authorization": self._body_signer.authorization(credentials, timestamp, body),
            "amz-sdk-invocation-id": request_id,
            "Content-Length": str(len(body)),
        }
        if credentials.token:
            headers["X-Amz-Security-Token"] = credentials.token
        return headers

    def text(self, changing: Mapping[str, str], body: bytes) -> bytes:
        """The request as it goes over the wire."""
        return f"{self._head}{_lines(changing)}\r\n".encode("latin-1") + body

    def _credentials(self) -> Credentials:
        signer, signing_name, region = self._signer
        found: Credentials | None
        found = signer.get_auth_instance(signing_name, region, "v4").credentials
        if found is None:
            raise NoCredentialsError
        return found


def _lines(headers: Mapping[str, str]) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in headers.items()])


def _host(url: str) -> str:
    """As it is signed and sent: without a port that goes without saying."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return host if parts.port in {None, usual} else f"{host}:{parts.port}"


def _text(value: str | bytes) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
