"""Clients of a run: all control-plane calls share one pace, so that the account's quota is left to others."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from kcl_mld import __version__
from kcl_mld.acceptance.options import AWS
from kcl_mld.aws.credentials import new_session
from kcl_mld.aws.errors import client_error, service_error
from kcl_mld.errors import ConfigError, CredentialsMissing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from botocore.client import BaseClient

#: No call keeps a limit or Ctrl-C from being heeded for minutes.
_ATTEMPTS = 4
_CONNECT_S, _READ_S = 5.0, 20.0
_AWS_DOMAINS = (
    ".amazonaws.com",
    ".amazonaws.com.cn",
    ".amazonaws.eu",
    ".api.aws",
    ".api.amazonwebservices.com.cn",
    ".api.amazonwebservices.eu",
)
_NO_CREDENTIALS = "no AWS credentials: set AWS_PROFILE, or log in"


class Pace:
    """Lets one call go in each interval, in the order in which they come. Thread-safe.

    Args:
        interval_s: >= 0.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        interval_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._sleep = sleep
        self._lock = threading.Lock()
        self._next_s = clock()

    def wait(self) -> None:
        """Return when the next call may go."""
        with self._lock:
            now_s = self._clock()
            go_s = max(now_s, self._next_s)
            self._next_s = go_s + self._interval_s
        if go_s > now_s:
            self._sleep(go_s - now_s)


class Clients:
    """The clients of one region, by the credentials and endpoints of the environment.

    Args:
        pace: of all control-plane calls together.

    Raises:
        ConfigError: the AWS configuration files can't be used.
    """

    def __init__(self, region: str, pace: Pace) -> None:
        self.region = region
        self._pace = pace
        self._session = new_session()
        self._session.set_config_variable("region", region)
        self._lock = threading.Lock()
        self._made: dict[tuple[str, bool], BaseClient] = {}

    def control(self, service: str) -> BaseClient:
        """A client whose requests, repeated ones included, go at the common pace."""
        return self._client(service, is_paced=True)

    def data(self, service: str) -> BaseClient:
        """A client for the resources of this run alone; its requests don't wait."""
        return self._client(service, is_paced=False)

    def _client(self, service: str, *, is_paced: bool) -> BaseClient:
        with self._lock:
            if (service, is_paced) not in self._made:
                client = self._make(service)
                if is_paced:
                    client.meta.events.register("before-send", self._wait)
                self._made[service, is_paced] = client
            return self._made[service, is_paced]

    def _wait(self, **_: object) -> None:
        self._pace.wait()

    def _make(self, service: str) -> BaseClient:
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            user_agent_extra=f"kcl-mld/{__version__} acceptance",
        )
        try:
            return self._session.create_client(service, region_name=self.region, config=config)
        except (ValueError, BotoCoreError) as error:
            raise ConfigError(f"{service} client: {error}") from error

    def call(self, service: str, operation: str, **request: Any) -> dict[str, Any]:
        """The answer of a control-plane call, e.g. ``("kinesis", "list_shards", StreamName=…)``.

        Raises:
            CredentialsMissing: there are none.
            AwsError: as the rest of the package has them.
        """
        client = self.control(service)
        try:
            answer: dict[str, Any] = getattr(client, operation)(**request)
        except NoCredentialsError:
            raise CredentialsMissing(_NO_CREDENTIALS) from None
        except ClientError as error:
            raise service_error(error, writes=True) from None
        except BotoCoreError as error:
            name = client.meta.method_to_api_mapping.get(operation, operation)
            raise client_error(error, name) from error
        return answer

    def credentials(self) -> tuple[str, str, str | None]:
        """Key id, secret and token of now.

        Raises:
            CredentialsMissing: there are none.
        """
        found = self._session.get_credentials()
        if found is None:
            raise CredentialsMissing(_NO_CREDENTIALS)
        frozen = found.get_frozen_credentials()
        return frozen.access_key, frozen.secret_key, frozen.token

    def endpoints(self, services: Iterable[str]) -> dict[str, str]:
        """Where the calls to each service go: :data:`kcl_mld.acceptance.options.AWS`, or host and port of another server.

        Raises:
            ConfigError: an endpoint in the environment or the profile can't be used.
        """
        return {one: _place(str(self.control(one).meta.endpoint_url)) for one in services}


def _place(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host.endswith(_AWS_DOMAINS):
        return AWS
    return f"{host}:{parts.port}" if parts.port else host
