"""Signature Version 4 of requests that differ in their time and body alone.

botocore builds each signature anew: maps of headers, the URL taken apart seven times, four keys
derived from each other that change once a day. All of that is the same for requests of one template,
one set of credentials and one day, and is kept here; two hashes and one HMAC are left. Nothing is
believed on its own: what is kept must first give, to the letter, a header that botocore has made.

Source: AWS Signature Version 4, ``botocore.auth.SigV4Auth``.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.credentials import ReadOnlyCredentials

_ALGORITHM = "AWS4-HMAC-SHA256"
_DATE, _TOKEN = "x-amz-date", "x-amz-security-token"
#: Stands for the time while the rest is being put together; in no header of a request.
_WHEN = "\0"


class RepeatedSignature:
    """Of ``POST /`` by one set of credentials on one day (UTC)."""

    def __init__(
        self,
        headers: Mapping[str, str],
        credentials: ReadOnlyCredentials,
        scope: str,
    ) -> None:
        """See :meth:`like`."""
        self._credentials, self._scope = credentials, scope
        day, region, service, _ = scope.split("/")
        key = f"AWS4{credentials.secret_key}".encode()
        for part in (day, region, service, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._day, self._key = day, key
        names = sorted(headers)
        lines = "".join([f"{name}:{' '.join(headers[name].split())}\n" for name in names])
        signed = ";".join(names)
        self._before, self._after = f"POST\n/\n\n{lines}\n{signed}\n".split(_WHEN)
        self._claim = (
            f"{_ALGORITHM} Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature="
        )

    @classmethod
    def like(
        cls,
        signed: Mapping[str, str],
        body: bytes,
        host: str,
        credentials: ReadOnlyCredentials,
    ) -> Self | None:
        """What gives the signature of a request of botocore's, and those of the next ones.

        Args:
            signed: headers of that request, ``Authorization`` among them.
            body: of that request.
            host: value of the header ``Host``.
            credentials: by which it was signed.

        Returns:
            None when it gives another signature than botocore did.
        """
        lower = {name.lower(): value for name, value in signed.items()} | {"host": host}
        claim = lower.get("authorization", "")
        _, _, scope = claim.partition(", ")[0].partition("/")
        names = claim.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        stamp = lower.get(_DATE, "")
        if scope.count("/") != 3 or _DATE not in names or not lower.keys() >= set(names):
            return None
        made = cls({name: lower[name] for name in names} | {_DATE: _WHEN}, credentials, scope)
        return made if made.authorization(stamp, body) == claim else None

    def is_good_for(self, credentials: ReadOnlyCredentials | None, stamp: str) -> bool:
        """Whether a request by these credentials at this time can be signed."""
        return credentials == self._credentials and stamp.startswith(self._day)

    def authorization(self, stamp: str, body: bytes) -> str:
        """Value of the header ``Authorization``.

        Args:
            stamp: value of ``X-Amz-Date``, e.g. ``20260101T120000Z``.
            body: of the request.
        """
        request = f"{self._before}{stamp}{self._after}{sha256(body).hexdigest()}"
        digest = sha256(request.encode()).hexdigest()
        text = f"{_ALGORITHM}\n{stamp}\n{self._scope}\n{digest}"
        return self._claim + hmac.digest(self._key, text.encode(), "sha256").hex()

    def headers(self, stamp: str, body: bytes) -> dict[str, str]:
        """The headers that botocore adds when it signs, in its order."""
        token = self._credentials.token
        return {
            "X-Amz-Date": stamp,
            **({"X-Amz-Security-Token": token} if token else {}),
            "Authorization": self.authorization(stamp, body),
        }
