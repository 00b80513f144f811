"""The time of a service, by the dates of its answers, and requests that are signed at it.

AWS refuses a request that was signed more than five to fifteen minutes off its own time. The
answer has a date, so such a call is repeated once, signed at that time, and the next calls of that
client are signed so from the start. Nothing is corrected before a refusal: a date may be wrong, too.

A date counts if the answer has a request id, which a page of a proxy has not, and if it came over
TLS, from an endpoint that the configuration names or from this machine.

Source: the codes are those of the AWS SDK for Java 2 (``RetryUtils``, ``ClockSkew``); the limit of
four minutes is its own, too.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from botocore.auth import SIGV4_TIMESTAMP

from kcl_mld.kernel.adapters.system import boot_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from botocore.awsrequest import AWSRequest
    from botocore.client import BaseClient

log = logging.getLogger("mld.aws")

#: Refusals that are about the time and nothing else.
_TIME_REFUSED = frozenset({"RequestExpired", "RequestInTheFuture", "RequestTimeTooSkewed"})
#: Refusals that may be about the time, or about the secret key.
_SIGNATURE_REFUSED = frozenset(
    {"AuthFailure", "InvalidSignatureException", "SignatureDoesNotMatch"}
)
#: A signature is refused for its time only if that is further off.
SKEW_S = 240.0
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")
_REQUEST_IDS = ("x-amzn-requestid", "x-amz-request-id", "x-amzn-request-id")
#: An answer's date has whole seconds, so of dates that are so near each other the latest is right;
#: and the date of an answer that took longer says little.
_SAME_S = 2.0
#: Keys of the context of a botocore request: when it was signed; how it is repeated.
_SIGNED_AT, _REPEAT = "mldSignedAt", "mldRepeat"

_clocks: WeakKeyDictionary[BaseClient, ServiceClock] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Repeat:
    """A call that was refused for its time and is repeated at the date of the answer.

    Attributes:
        ahead_s: the time at which it is signed now, minus the monotonic clock.
        before_s: the same for the requests before; None = this machine's time.
    """

    ahead_s: float
    before_s: float | None


class ServiceClock:
    """Of one client; used by many threads.

    Args:
        name: of the service, for the log.
        trusts_dates: see above.
        monotonic: advances while the machine is suspended.
    """

    def __init__(
        self,
        name: str,
        *,
        trusts_dates: bool,
        monotonic: Callable[[], float] = boot_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._name = name
        self._trusts_dates = trusts_dates
        self._monotonic = monotonic
        self._wall = wall
        self._thread = threading.local()
        self._text = ""
        self._ahead_s: float | None = None
        self._signing_ahead_s: float | None = None

    def now_s(self) -> float | None:
        """Epoch seconds, right to about a second; None where no answer had a date that counts."""
        ahead_s = self._ahead_s
        return None if ahead_s is None else self._monotonic() + ahead_s

    def signing_s(self) -> float:
        """Epoch seconds at which a request is signed now."""
        ahead_s = self._signing_ahead_s
        return self._wall() if ahead_s is None else self._monotonic() + ahead_s

    def begin(self) -> None:
        """A call of this thread begins."""
        self._thread.began_at = self._monotonic()

    def note(self, response_dict: dict[str, Any], **_: Any) -> None:
        """The hook ``before-parse`` of all operations: remember the date."""
        headers = response_dict["headers"]
        text = str(headers.get("date", ""))
        if text == self._text:
            return
        now = self._monotonic()
        if now - getattr(self._thread, "began_at", -1e9) > _SAME_S:
            return
        date_s = self._date_s(headers)
        if date_s is None:
            return
        self._text = text
        ahead_s, known_s = date_s - now, self._ahead_s
        is_same = known_s is not None and abs(ahead_s - known_s) < _SAME_S
        self._ahead_s = max(ahead_s, known_s) if is_same and known_s is not None else ahead_s

    def repeat(self, refusal: Mapping[str, Any], signed_s: float) -> Repeat | None:
        """How a refused call is repeated: requests are signed at the date of the answer from now on.

        Args:
            refusal: as botocore parses it, e.g. ``ClientError.response``.
            signed_s: epoch seconds at which the request was signed.

        Returns:
            None where it was not refused for its time.
        """
        code = refusal.get("Error", {}).get("Code")
        if code not in _TIME_REFUSED | _SIGNATURE_REFUSED:
            return None
        date_s = self._date_s(refusal.get("ResponseMetadata", {}).get("HTTPHeaders", {}))
        if date_s is None or (code in _SIGNATURE_REFUSED and abs(date_s - signed_s) <= SKEW_S):
            return None
        repeat = Repeat(date_s - self._monotonic(), self._signing_ahead_s)
        self._signing_ahead_s = repeat.ahead_s
        log.info(
            "%s refused a request that was signed %+.0f s off its time (%s); the request is repeated "
            "with the time of its answer",
            self._name,
            signed_s - date_s,
            code,
        )
        return repeat

    def judge(self, repeat: Repeat, error: Mapping[str, Any]) -> None:
        """A repeated call was answered by an error; if by the same, it was not the time.

        Then requests are signed as before.
        """
        is_refused = error.get("Error", {}).get("Code") in _TIME_REFUSED | _SIGNATURE_REFUSED
        if is_refused and self._signing_ahead_s == repeat.ahead_s:
            self._signing_ahead_s = repeat.before_s

    def _date_s(self, headers: Mapping[str, Any]) -> float | None:
        """Epoch seconds of the date of an answer, if it counts."""
        if not (self._trusts_dates and any(name in headers for name in _REQUEST_IDS)):
            return None
        with suppress(ValueError, TypeError, OverflowError):
            return parsedate_to_datetime(str(headers.get("date", ""))).timestamp()
        return None

    # -- hooks of botocore -------------------------------------------------------------------------

    def see_signing(self, request: AWSRequest, **_: Any) -> None:
        """The hook ``before-sign``: botocore signs at the time that stands in the context."""
        signed_s = request.context[_SIGNED_AT] = self.signing_s()
        if self._signing_ahead_s is not None:
            request.context = DatedContext(request.context, signing_stamp(signed_s))

    def see_answer(
        self,
        response: tuple[Any, dict[str, Any]] | None,
        request_dict: dict[str, Any],
        **_: Any,
    ) -> float | None:
        """The hook ``needs-retry``: the pause before the call is repeated; None = it is not."""
        context = request_dict["context"]
        repeat: Repeat | None = context.pop(_REPEAT, None)
        if response is None or "Error" not in response[1] or _SIGNED_AT not in context:
            return None
        if repeat is not None:
            self.judge(repeat, response[1])
            return None
        repeat = self.repeat(response[1], context[_SIGNED_AT])
        if repeat is None:
            return None
        context[_REPEAT] = repeat
        return 0.0


class DatedContext(dict[str, Any]):
    """The context of a request, which is signed at our time, whatever time botocore finds.

    botocore writes the time of signing into the context and signs by what stands there.
    """

    def __init__(self, context: Mapping[str, Any], stamp: str) -> None:
        super().__init__(context)
        self._stamp = stamp

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, self._stamp if key == "timestamp" else value)


def signing_stamp(epoch_s: float) -> str:
    """A time as requests are signed with it, e.g. ``20260101T120000Z``."""
    return time.strftime(SIGV4_TIMESTAMP, time.gmtime(epoch_s))


def service_clock_of(client: BaseClient, *, is_endpoint_named: bool = False) -> ServiceClock:
    """The clock of a client; at the first call its hooks are added to the client.

    Args:
        is_endpoint_named: by the configuration; only the value of the first call counts.
    """
    if client not in _clocks:
        url = urlsplit(client.meta.endpoint_url)
        is_trusted = is_endpoint_named or url.scheme == "https" or url.hostname in _THIS_MACHINE
        clock = ServiceClock(client.meta.service_model.service_name, trusts_dates=is_trusted)
        events = client.meta.events
        events.register("before-parse", clock.note)
        events.register("before-sign", clock.see_signing)
        events.register("needs-retry", clock.see_answer)
        _clocks[client] = clock
    return _clocks[client]
