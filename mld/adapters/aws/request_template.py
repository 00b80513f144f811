"""What stays the same in the requests of one operation, and what is filled in for each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from botocore.auth import SIGV4_TIMESTAMP, SigV4Auth
from botocore.awsrequest import AWSRequest

from mld.adapters.aws.repeated_signature import RepeatedSignature

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.awsrequest import AWSPreparedRequest
    from botocore.credentials import ReadOnlyCredentials

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
        self._repeated: RepeatedSignature | None = None
        self._host = _host(url)
        lines = {"Host": self._host, "Accept-Encoding": "identity"} | self.fixed
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
            None when the request is unusual, or was signed for another region or service.
        """
        headers = {name: _text(value) for name, value in request.headers.items()}
        lower = {name.lower(): value for name, value in headers.items()}
        target = urlsplit(request.url)
        is_usual = (
            request.method == "POST"
            and (target.path or "/", target.query) == ("/", "")
            and lower.get("content-type", "").startswith(_JSON)
            and lower.keys() <= _FIXED | _CHANGING
            and f"/{region}/{signing_name}/aws4_request," in lower.get("authorization", "")
        )
        if not is_usual:
            return None
        fixed = {name: value for name, value in headers.items() if name.lower() in _FIXED}
        return cls(request.url, fixed, signer, signing_name, region)

    def changing_headers(self, body: bytes, request_id: str) -> dict[str, str]:
        """The headers of one request beside the fixed ones.

        They are those that botocore makes when it signs; after the first of some credentials and
        day they come from what was kept of that one.

        Raises:
            NoCredentialsError: there are none any more.
        """
        signer, signing_name, region = self._signer
        # Asked for each time: they are renewed when they are about to expire.
        auth = signer.get_auth_instance(signing_name, region, "v4")
        stamp = time.strftime(SIGV4_TIMESTAMP, time.gmtime(time.time()))
        repeated = self._repeated
        if repeated is not None and repeated.is_good_for(auth.credentials, stamp):
            signed = repeated.headers(stamp, body)
        else:
            signed = self._signed_by_botocore(auth, body)
        return signed | {"amz-sdk-invocation-id": request_id, "Content-Length": str(len(body))}

    def _signed_by_botocore(self, auth: Any, body: bytes) -> dict[str, str]:
        credentials: ReadOnlyCredentials | None = auth.credentials
        request = AWSRequest("POST", self.url, self.fixed, body)
        auth.add_auth(request)
        signed = {name: _text(value) for name, value in request.headers.items()}
        if credentials is not None and type(auth) is SigV4Auth:
            self._repeated = RepeatedSignature.like(signed, body, self._host, credentials)
        return {name: value for name, value in signed.items() if name not in self.fixed}

    def text(self, changing: Mapping[str, str], body: bytes) -> bytes:
        """The request as it goes over the wire."""
        return f"{self._head}{_lines(changing)}\r\n".encode("latin-1") + body


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
