"""How keys that expire are renewed: old ones serve until they expire, and nobody is asked in a storm.

botocore asks for new keys with every request from fifteen minutes before the old ones expire on, and
in the last ten it lets no request go that has no new ones. Java's SDK uses keys up to the last
minute; so does this, to the end. Whoever makes them may take his time, so a thread of its own asks,
and no request waits for it that has keys.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.credentials import (
    CachedCredentialFetcher,
    DeferredRefreshableCredentials,
    RefreshableCredentials,
)
from botocore.exceptions import CredentialRetrievalError

from mld.adapters.aws.answer_limit import waiting
from mld.adapters.aws.credential_keys import (
    UselessKeys,
    is_out_of_reach,
    of_use,
    require_texts,
    why_failed,
    with_zone,
)
from mld.adapters.calls import start_thread
from mld.errors import ThreadRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.credentials import Credentials

_log = logging.getLogger(__name__)

#: Whoever makes the keys is asked once in so many seconds while they are due.
PAUSE_S = 5.0
#: That it does so in vain is told as often.
REPEAT_S = 60.0
#: A request without keys fails so many seconds after somebody was asked who does not answer.
WAIT_S = 90.0


def renewed_plainly(
    credentials: Credentials,
    monotonic: Callable[[], float] = time.monotonic,
    start: Callable[[Callable[[], None], str], None] = start_thread,
) -> Credentials:
    """The same; if they can be renewed, from now on as this module says.

    Args:
        credentials: of any provider.
        monotonic: seconds of a clock that is never set.
        start: runs something in a thread, as :func:`start_thread`.
    """
    # A second one would ask through the first.
    if isinstance(credentials, RefreshableCredentials) and not _is_renewed_plainly(credentials):
        _Renewal(credentials, monotonic, start)
    return credentials


def _is_renewed_plainly(credentials: Any) -> bool:
    return isinstance(getattr(credentials._refresh, "__self__", None), _Renewal)  # noqa: SLF001


def usable(credentials: Credentials | None) -> Credentials | None:
    """What a provider has just brought, to be renewed as this module says.

    Raises:
        Exception: as :func:`require_keys`.
    """
    if credentials is not None:
        require_keys(renewed_plainly(credentials))
    return credentials


def require_keys(credentials: Credentials) -> None:
    """Refuse what a provider has just brought, if it signs nothing.

    Keys that had expired are asked for once more: some providers begin with those they remember.
    Those that botocore leaves to the first request, of roles and SSO in profiles, are asked for
    now; where nobody is reached, they are left to the requests, which are repeated.

    Args:
        credentials: from :func:`renewed_plainly`.

    Raises:
        UselessKeys: a key is not there or empty.
        CredentialRetrievalError: they have expired, and there are no new ones; or they never came.
    """
    if isinstance(credentials, DeferredRefreshableCredentials):
        try:
            credentials.get_frozen_credentials()
        except CredentialRetrievalError as error:
            if not is_out_of_reach(error):
                raise
        return
    if not isinstance(credentials, RefreshableCredentials):
        require_texts(credentials.access_key, credentials.secret_key, credentials.token)
        return
    if credentials.refresh_needed(refresh_in=0):
        credentials.get_frozen_credentials()
    found: Any = credentials._frozen_credentials  # noqa: SLF001 - its own way would ask for new ones
    require_texts(found.access_key, found.secret_key, found.token)


@dataclass(slots=True)
class _Attempt:
    """To get new keys.

    Attributes:
        began_at: seconds, as of the renewal's clock.
        is_over: it has brought new keys, or never will.
        why: it brought none, or none that last.
        error: the same, where there is one.
        again_at: when the next one may begin.
    """

    began_at: float
    is_over: threading.Event = field(default_factory=threading.Event)
    why: str = "no new ones came"
    error: Exception | None = None
    again_at: float = 0.0


class _Renewal:
    """Stands before the renewal of one set of keys; may be used by many threads.

    A request that is never sent for want of keys is one of many troubles on the way to AWS, and may
    be over in a minute. An error of another class would end the worker as a fault of its own.
    """

    def __init__(
        self,
        credentials: RefreshableCredentials,
        monotonic: Callable[[], float],
        start: Callable[[Callable[[], None], str], None],
    ) -> None:
        self._credentials: Any = credentials
        self._monotonic = monotonic
        self._start = start
        self._lock = threading.Lock()  # guards the next one; nobody is asked under it
        self._last: _Attempt | None = None
        self._told_at: float | None = None
        expiry = self._credentials._expiry_time  # noqa: SLF001
        if expiry is not None:
            self._credentials._expiry_time = with_zone(expiry)  # noqa: SLF001
        # All ways to the keys lead through it: frozen ones, single ones, and the account.
        self._credentials._refresh = self._renew  # noqa: SLF001

    def _renew(self) -> None:
        """Have somebody renew what is about to expire; wait for that if it has expired.

        Raises:
            CredentialRetrievalError: it has, and there are no new ones. Whatever the cause, a
                request for something else was meant and was not sent.
        """
        if not self._credentials.refresh_needed():
            return
        attempt = self._attempt()
        if not self._has_expired():
            return
        with waiting():
            left_s = attempt.began_at + WAIT_S - self._monotonic()
            is_over = attempt.is_over.wait(max(left_s, 0.0))
        if self._has_expired():
            taken_s = self._monotonic() - attempt.began_at
            why = attempt.why if is_over else f"it has not answered for {taken_s:.0f} s"
            failed = CredentialRetrievalError(provider=self._credentials.method, error_msg=why)
            raise failed from attempt.error

    def _attempt(self) -> _Attempt:
        """The one that is under way; else the last one, unless it is time for another."""
        with self._lock:
            last, now = self._last, self._monotonic()
            if last is not None and (
                not last.is_over.is_set()
                or now < last.again_at
                or not self._credentials.refresh_needed()  # it ended after we had looked
            ):
                return last
            attempt = self._last = _Attempt(now)
        try:
            self._start(partial(self._ask, attempt), "credentials")
        except ThreadRefused as error:
            # A request that has keys is not to wait; one that has none asks itself.
            if self._has_expired():
                self._ask(attempt)
            else:
                self._failed(attempt, str(error))
                attempt.is_over.set()
        return attempt

    def _ask(self, attempt: _Attempt) -> None:
        """By one thread at a time."""
        try:
            self._bring()
        except Exception as error:  # noqa: BLE001 - see why_failed()
            attempt.error = error
            self._failed(attempt, why_failed(error))
        else:
            if self._told_at is not None:
                _log.info("New keys of %s have come", self._credentials.method)
            self._told_at = None
            # Some keys live for minutes only.
            if self._credentials.refresh_needed():
                attempt.again_at = self._monotonic() + PAUSE_S
        finally:
            attempt.is_over.set()

    def _failed(self, attempt: _Attempt, why: str) -> None:
        attempt.why = why
        attempt.again_at = self._monotonic() + PAUSE_S
        self._tell(why)

    def _bring(self) -> None:
        """Ask for new keys and put them into the place of the old ones, if they are of any use."""
        ask = self._credentials._refresh_using  # noqa: SLF001
        try:
            keys = of_use(ask(), self._credentials._time_fetcher())  # noqa: SLF001
        except UselessKeys:
            # Those of STS and SSO would come again from botocore's memory until they expire.
            fetcher: Any = getattr(ask, "__self__", None)
            if isinstance(fetcher, CachedCredentialFetcher):
                fetcher._cache.pop(fetcher._cache_key, None)  # noqa: SLF001
            raise
        self._credentials._set_from_data(keys)  # noqa: SLF001
        self._credentials._publish_refresh()  # noqa: SLF001

    def _tell(self, why: str) -> None:
        now = self._monotonic()
        if self._told_at is not None and now < self._told_at + REPEAT_S:
            return
        self._told_at = now
        method = self._credentials.method
        if self._credentials._frozen_credentials is None:  # noqa: SLF001
            _log.warning("No keys of %s have come: %s", method, why)
            return
        until = "have expired" if self._has_expired() else "serve until they expire"
        _log.warning("No new keys of %s have come; the old ones %s: %s", method, until, why)

    def _has_expired(self) -> bool:
        return bool(self._credentials.refresh_needed(refresh_in=0))
