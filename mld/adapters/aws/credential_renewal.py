"""How keys that expire are renewed: old ones serve until they expire, and nobody is asked in a storm.

botocore asks for new keys with every request from fifteen minutes before the old ones expire on, and
in the last ten it lets no request go that has no new ones. Java's SDK uses keys up to the last
minute; so does this, to the end.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC
from typing import TYPE_CHECKING, Any

from botocore.credentials import RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, CredentialRetrievalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.credentials import Credentials

#: Whoever makes the keys is asked once in so many seconds while they are due.
PAUSE_S = 5.0


def why_failed(error: Exception) -> str:
    """What to say of an error on the way to credentials.

    Programs and servers of the operator make the keys, and botocore trusts their form: it lets
    through whatever an answer of another form leads to, of any class. Its messages name files,
    profiles and roles, never keys.
    """
    if isinstance(error, BotoCoreError | ClientError | OSError | RuntimeError):
        return str(error)
    return f"its answer or a setting of it can't be read: {type(error).__name__}: {error}"


def renewed_plainly(
    credentials: Credentials, monotonic: Callable[[], float] = time.monotonic
) -> Credentials:
    """The same; if they can be renewed, from now on as this module says.

    Args:
        credentials: of any provider.
        monotonic: seconds of a clock that is never set.
    """
    if isinstance(credentials, RefreshableCredentials):
        _Renewal(credentials, monotonic)
    return credentials


class _Renewal:
    """Stands before the renewal of one set of keys; may be used by many threads.

    A request that is never sent for want of keys is one of many troubles on the way to AWS, and may
    be over in a minute. An error of another class would end the worker as a fault of its own.
    """

    def __init__(self, credentials: RefreshableCredentials, monotonic: Callable[[], float]) -> None:
        self._credentials: Any = credentials
        self._monotonic = monotonic
        self._lock = threading.Lock()  # held by the thread that asks
        self._asked: tuple[float, str] | None = None  # in vain: when, and why
        # All ways to the keys lead through it: frozen ones, single ones, and the account.
        self._refresh = self._credentials._refresh  # noqa: SLF001
        self._credentials._refresh = self._renew  # noqa: SLF001

    def _renew(self) -> None:
        """Renew what is about to expire.

        Raises:
            CredentialRetrievalError: they have expired, and there are no new ones.
            BotoCoreError: the same, in words of botocore's.
            ClientError: the same, in words of AWS.
        """
        self._mend_zone()
        if not self._credentials.refresh_needed():
            return
        # Who has keys that work does not wait for the one who asks for new ones.
        if not self._lock.acquire(blocking=self._has_expired()):
            return
        try:
            self._renew_alone()
        finally:
            self._lock.release()

    def _renew_alone(self) -> None:
        if self._asked is not None and self._monotonic() < self._asked[0] + PAUSE_S:
            if self._has_expired():
                raise self._trouble(self._asked[1])
            return
        try:
            self._refresh()
        except Exception as error:
            self._asked = (self._monotonic(), why_failed(error))
            self._mend_zone()
            if not self._has_expired():
                return  # botocore has told it as a warning
            if isinstance(error, BotoCoreError | ClientError):
                raise
            raise self._trouble(self._asked[1]) from error
        # Early on botocore keeps an error to itself; and some keys live for minutes only.
        are_due = self._credentials.refresh_needed()
        self._asked = (self._monotonic(), "no new ones came") if are_due else None

    def _has_expired(self) -> bool:
        return bool(self._credentials.refresh_needed(refresh_in=0))

    def _mend_zone(self) -> None:
        """A program that leaves the zone out means UTC; else nothing would be renewed any more."""
        expiry = self._credentials._expiry_time  # noqa: SLF001
        if expiry is not None and expiry.tzinfo is None:
            self._credentials._expiry_time = expiry.replace(tzinfo=UTC)  # noqa: SLF001

    def _trouble(self, why: str) -> CredentialRetrievalError:
        return CredentialRetrievalError(provider=self._credentials.method, error_msg=why)
