"""Asks workers for their page ``/leases``, which ``--http`` serves.

No proxy and no redirect: what is asked is the address that was typed, or each address of a name
that has several, as a headless Service of Kubernetes has. One that does not answer is named. As
many as the pool has threads delay a snapshot by :data:`TIMEOUT_S` together, and a name that can't
be looked up by twice that.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import urlsplit, urlunsplit

from kcl_mld.errors import MalformedData
from kcl_mld.observe.model.worker_page import WorkerPage, read_page

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.kernel.adapters.calls import CallPool
    from kcl_mld.kernel.ports import Clock

TIMEOUT_S = 5.0
#: A page has some 600 bytes for each lease.
_MOST_BYTES = 16 * 2**20


class WorkerPages:
    """The pages of the workers at some addresses.

    Args:
        urls: ``http://HOST:PORT/leases`` or ``https://…``.
        pool: of threads for the requests.
        clock: dates the answers.
    """

    def __init__(self, urls: Sequence[str], pool: CallPool, clock: Clock) -> None:
        self._urls = urls
        self._pool = pool
        self._clock = clock
        self._turns = asyncio.Semaphore(pool.threads)  # waiting for a thread is no silence

    async def ask(self) -> tuple[WorkerPage, ...]:
        """One page for each address, in their order."""
        found = await asyncio.gather(*map(self._addresses, self._urls))
        hosts = dict(itertools.chain.from_iterable(found))
        return tuple(await asyncio.gather(*itertools.starmap(self._ask, hosts.items())))

    async def _addresses(self, url: str) -> list[tuple[str, str]]:
        """The URL of each address, and the host that was typed.

        A name that can't be looked up stays as it is, and fails then.
        """
        host = urlsplit(url).netloc
        try:
            async with self._turns, asyncio.timeout(TIMEOUT_S):
                return [(one, host) for one in await self._pool.run(_each_address, url)]
        except (TimeoutError, OSError):
            return [(url, host)]

    async def _ask(self, url: str, host: str) -> WorkerPage:
        at = self._clock.monotonic()
        try:
            async with self._turns, asyncio.timeout(TIMEOUT_S):
                at = self._clock.monotonic()
                return read_page(url, at, await self._pool.run(_get, url, host))
        except TimeoutError:
            failure = f"no answer within {TIMEOUT_S:g} s"
        except (OSError, HTTPException, MalformedData, _NoPage) as error:
            failure = str(error) or type(error).__name__
        return WorkerPage(url=url, asked_at=at, failure=failure)


class _NoPage(Exception):
    """It answers something else."""


def _each_address(url: str) -> list[str]:
    """URLs of the addresses of a host that has several of one family.

    A host with one of each, such as ``localhost``, is one worker. The certificate of ``https`` is
    for the name.
    """
    parts = urlsplit(url)
    found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    hosts = sorted({str(address[0]) for family, *_, address in found if family == found[0][0]})
    if parts.scheme == "https" or len(hosts) == 1:
        return [url]
    places = [f"[{host}]" if ":" in host else host for host in hosts]
    return [
        urlunsplit(("http", f"{place}:{parts.port or 80}", parts.path, "", "")) for place in places
    ]


def _get(url: str, host: str) -> bytes:
    parts = urlsplit(url)
    assert parts.hostname is not None, "checked when it was typed"
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", parts.path, headers={"Host": host})
        with connection.getresponse() as answer:
            body = answer.read(_MOST_BYTES + 1)
    finally:
        connection.close()
    if answer.status != 200:
        raise _NoPage(f"it answers {answer.status}")
    if len(body) > _MOST_BYTES:
        raise _NoPage(f"its answer has more than {_MOST_BYTES} bytes")
    return body
