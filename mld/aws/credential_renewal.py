"""How keys that expire are renewed: old ones serve until they expire, and one thread asks at a time.

botocore asks for new keys with every request from fifteen minutes before the old ones expire on, and
in the last ten it lets no request go that has no new ones. Java's SDK uses keys up to the last
minute; so does this, to the end. Their provider may take long, so a thread of its own asks, and
no request waits for it that has keys. New keys come from the provider as at the start: nothing is
known here of how botocore renews.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.credentials import Credentials, DeferredRefreshableCredentials, RefreshableCredentials
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError as BotoConnectionError,
    CredentialRetrievalError,
    HTTPClientError,
)

from kcl_mld.aws.errors import service_error
from kcl_mld.aws.whole_answers import waiting
from kcl_mld.errors import CredentialsRefused, Denied, ThreadRefused
from kcl_mld.kernel.adapters.calls import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.credentials import ReadOnlyCredentials

_log = logging.getLogger("mld.aws")

#: Seconds between two requests to the provider while keys are due.
PAUSE_S = 5.0
#: Seconds between two log lines about its failures.
REPEAT_S = 60.0
#: A start or a request without keys fails this many seconds after the request to the provider.
WAIT_S = 90.0


class UselessKeys(Exception):
    """A provider returned keys that can't sign; the message has the reason, but not the keys."""


def why_failed(error: Exception) -> str:
    """The message for an error in getting credentials, with its remedy.

    botocore's messages name files, profiles and roles, never keys.
    """
    if isinstance(error, ClientError):
        return f"{error}{_remedy(error)}"
    if isinstance(error, BotoCoreError | OSError | RuntimeError | UselessKeys):
        return str(error)
    return f"its answer or a setting of it can't be read: {type(error).__name__}: {error}"


def renewed(
    load: Callable[[], Credentials | None],
    why: Callable[[Exception], str] = why_failed,
    *,
    monotonic: Callable[[], float] = time.monotonic,
    start: Callable[[Callable[[], None], str], None] = start_thread,
) -> Credentials | None:
    """The credentials of a provider, renewed by this module if they expire; None = it has none.

    Where keys are left to the first request (roles and SSO of profiles) and nobody is reached who
    gives them, requests ask again.

    Args:
        load: requests keys from the provider, at the start and at each renewal.
        why: text of an error of ``load``.
        monotonic: seconds of a clock that is never set.
        start: runs something in a thread, as :func:`start_thread`.

    Raises:
        UselessKeys: a key is missing or empty, or the keys have expired.
        CredentialRetrievalError: no answer within :data:`WAIT_S`.
        Exception: of any class, from the provider.
    """
    first: Future[Credentials | None] = Future()

    def ask() -> None:
        try:
            first.set_result(_begin(load, why, monotonic, start))
        except Exception as error:  # noqa: BLE001 - raised where the result is wanted
            first.set_exception(error)

    try:
        start(ask, "credentials")
    except ThreadRefused:
        ask()
    try:
        return first.result(WAIT_S)
    except TimeoutError as error:
        if first.done():  # the provider's own
            raise
        raise CredentialRetrievalError(
            provider="the provider", error_msg=f"no answer within {WAIT_S:g} s"
        ) from error


def _begin(
    load: Callable[[], Credentials | None],
    why: Callable[[Exception], str],
    monotonic: Callable[[], float],
    start: Callable[[Callable[[], None], str], None],
) -> Credentials | None:
    found = load()
    if not isinstance(found, RefreshableCredentials):
        if found is not None:
            _require_texts(found.get_frozen_credentials())
        return found
    credentials = RenewedCredentials(load, why, monotonic, start, method=found.method)
    try:
        credentials.hold(found)
    except Exception as error:
        if not (isinstance(found, DeferredRefreshableCredentials) and _is_out_of_reach(error)):
            raise
        credentials.warn(why(error))
    return credentials


@dataclass(slots=True)
class _Attempt:
    """An attempt to get new keys.

    Attributes:
        began_at: seconds, as of the clock.
        is_over: new keys came, or never will.
        why: no new keys came.
        again_at: when the next one may begin.
    """

    began_at: float
    is_over: threading.Event = field(default_factory=threading.Event)
    why: str = "no new ones came"
    error: Exception | None = None
    again_at: float = 0.0


class RenewedCredentials(Credentials):  # type: ignore[misc]
    """Keys that expire; for many threads.

    A request that is not sent for want of keys fails as one that did not reach AWS: it may succeed
    within a minute. An error of another class would end the worker.

    Attributes:
        found: botocore's object that returned the keys in use; None before the first keys.
    """

    def __init__(
        self,
        load: Callable[[], Credentials | None],
        why: Callable[[Exception], str],
        monotonic: Callable[[], float],
        start: Callable[[Callable[[], None], str], None],
        *,
        method: str,
    ) -> None:
        super().__init__("", "", method=method)
        self.found: RefreshableCredentials | None = None
        self._keys: ReadOnlyCredentials | None = None
        self._load = load
        self._why = why
        self._monotonic = monotonic
        self._start = start
        self._lock = threading.Lock()  # guards the next one; no request is made under it
        self._last: _Attempt | None = None
        self._warned_at: float | None = None

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """The keys to sign with; starts a renewal when it is due, waits only without good keys.

        Raises:
            CredentialRetrievalError: there are no keys, or they have expired and no new ones came.
                The request was not sent.
        """
        if self._is_due():
            self._renew()
        return self._keys

    def hold(self, found: Credentials | None) -> None:
        """Use new keys from now on.

        Raises:
            UselessKeys: they can't sign; the earlier ones stay.
            Exception: of any class, from the provider, where keys are made only now.
        """
        if not isinstance(found, RefreshableCredentials):
            raise UselessKeys("it brought no keys that expire")
        keys = found.get_frozen_credentials()
        _require_texts(keys)
        if found.refresh_needed(refresh_in=0):
            raise UselessKeys("it brought keys that had expired")
        self.method = found.method
        self.access_key, self.secret_key, self.token = keys.access_key, keys.secret_key, keys.token
        self.account_id = getattr(keys, "account_id", None)
        self.found, self._keys = found, keys

    def warn(self, why: str) -> None:
        """Log that there are no new keys, at most once in :data:`REPEAT_S`."""
        now = self._monotonic()
        if self._warned_at is not None and now < self._warned_at + REPEAT_S:
            return
        self._warned_at = now
        if self._keys is None:
            _log.warning("No credentials received from %s: %s", self.method, why)
            return
        until = "have expired" if self._has_expired() else "serve until they expire"
        _log.warning(
            "No new credentials received from %s; the old ones %s: %s", self.method, until, why
        )

    def _is_due(self) -> bool:
        return self.found is None or bool(self.found.refresh_needed())

    def _has_expired(self) -> bool:
        return self.found is None or bool(self.found.refresh_needed(refresh_in=0))

    def _renew(self) -> None:
        attempt = self._attempt()
        if not self._has_expired():
            return
        with waiting():
            left_s = attempt.began_at + WAIT_S - self._monotonic()
            is_over = attempt.is_over.wait(max(left_s, 0.0))
        if self._has_expired():
            taken_s = self._monotonic() - attempt.began_at
            why = attempt.why if is_over else f"it has not answered for {taken_s:.0f} s"
            raise CredentialRetrievalError(provider=self.method, error_msg=why) from attempt.error

    def _attempt(self) -> _Attempt:
        """The attempt in progress; else the last one, unless it is time for another."""
        with self._lock:
            last, now = self._last, self._monotonic()
            if last is not None and (
                not last.is_over.is_set()
                or now < last.again_at
                or not self._is_due()  # it ended after the caller had asked
            ):
                return last
            attempt = self._last = _Attempt(now)
        try:
            self._start(partial(self._ask, attempt), "credentials")
        except ThreadRefused as error:
            # A request that has keys must not wait; one that has none requests them itself.
            if self._has_expired():
                self._ask(attempt)
            else:
                self._fail(attempt, str(error))
                attempt.is_over.set()
        return attempt

    def _ask(self, attempt: _Attempt) -> None:
        """Request new keys; called by one thread at a time."""
        try:
            self.hold(self._load())
        except Exception as error:  # noqa: BLE001 - see why_failed()
            attempt.error = error
            self._fail(attempt, self._why(error))
        else:
            if self._warned_at is not None:
                _log.info("Received new credentials from %s", self.method)
            self._warned_at = None
            # Some keys live for minutes only.
            if self._is_due():
                attempt.again_at = self._monotonic() + PAUSE_S
        finally:
            attempt.is_over.set()

    def _fail(self, attempt: _Attempt, why: str) -> None:
        attempt.why = why
        attempt.again_at = self._monotonic() + PAUSE_S
        self.warn(why)


def _is_out_of_reach(error: BaseException | None) -> bool:
    """Whether the provider of keys was not reached, or fails: it may pass within seconds."""
    while error is not None:
        if isinstance(error, HTTPClientError | BotoConnectionError):
            return True
        if isinstance(error, ClientError):
            return bool(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) >= 500)
        error = error.__cause__
    return False


def _require_texts(keys: Any) -> None:
    for what, key in (("access key", keys.access_key), ("secret key", keys.secret_key)):
        if not isinstance(key, str) or not key.strip():
            instead = "null" if key is None else "empty" if isinstance(key, str) else "no text"
            raise UselessKeys(f"it brought keys whose {what} is {instead}")
    if keys.token is not None and not isinstance(keys.token, str):
        raise UselessKeys("it brought keys whose session token is no text")


def _remedy(error: ClientError) -> str:
    """The remedy for a refusal of the service that issues keys, as the end of a sentence."""
    kind = service_error(error, writes=False)
    if isinstance(kind, CredentialsRefused):
        return (
            ". Renew the keys or the token with which the role is assumed,"
            " or set the clock of this machine right"
        )
    if isinstance(kind, Denied) and error.operation_name.startswith("AssumeRole"):
        return (
            f". Allow sts:{error.operation_name} on this role to whoever assumes it, in the policy"
            " of that one and in the trust policy of the role"
        )
    return ""
