"""Credential chains of a properties file as botocore sessions.

No credential is read before a client asks for it, except that a chain with
``AnonymousCredentialsProvider`` checks at once whether an earlier entry has any. Nothing here logs
or prints a secret.
"""

from __future__ import annotations

import contextlib
import gzip
import logging
import os
import shlex
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    DeferredRefreshableCredentials,
    EnvProvider,
    ProcessProvider,
    create_credential_resolver,
)
from botocore.exceptions import (
    BotoCoreError,
    CredentialRetrievalError,
    SSOError,
    TokenRetrievalError,
)
from botocore.loaders import JSONFileLoader, Loader
from botocore.session import Session

from kcl_mld.aws.credential_renewal import renewed, why_failed
from kcl_mld.aws.service_clock import service_clock_of
from kcl_mld.config.credentials import (
    AssumedRole,
    CredentialChain,
    CredentialSource,
    CredentialStep,
)
from kcl_mld.errors import ConfigError, CredentialsMissing

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.client import BaseClient
    from botocore.credentials import CredentialResolver, Credentials

_log = logging.getLogger("mld.aws")
#: For a ``credential_process``, and for whatever holds the pipes that it was given.
PROCESS_LIMIT_S = 60.0
#: A process that was killed is gone sooner, unless the system can't end it now.
_GONE_S = 1.0


def make_session(chain: CredentialChain, region: str | None) -> Session:
    """A botocore session whose clients sign with the first provider of the chain that has keys.

    Args:
        chain: not empty.
        region: default region of its clients, and of STS where the chain names none.

    Raises:
        ConfigError: an assume-role entry has no region at all: name ``endpointRegion``; or the
            AWS configuration files cannot be used.
    """
    session = new_session()
    if region is not None:
        session.set_config_variable("region", region)
    resolver = ChainResolver(session, chain, region)
    session.register_component("credential_provider", resolver)
    if resolver.is_anonymous():
        _sign_nothing(session)
    return session


class AwsSessions:
    """One session a chain: clients that share it share keys, an assumed role and 3 MiB each."""

    def __init__(self, region: str | None) -> None:
        self._region = region
        self._by_chain: dict[CredentialChain, Session] = {}

    def of(self, chain: CredentialChain) -> Session:
        """The session of a chain, made on first use.

        Raises:
            ConfigError: as :func:`make_session`.
        """
        if chain not in self._by_chain:
            self._by_chain[chain] = make_session(chain, self._region)
        return self._by_chain[chain]


def require_credentials(session: Session, what: str) -> None:
    """Resolve credentials now, to fail early.

    Args:
        session: from :func:`make_session`.
        what: property that names the chain, for the message.

    Raises:
        CredentialsMissing: no provider of the chain has any; the message names them.
    """
    resolver = session.get_component("credential_provider")
    if resolver.is_anonymous() or session.get_credentials() is not None:
        return
    raise CredentialsMissing(f"{what}: no credentials found by {resolver}: {resolver.why_none()}")


def profiles() -> list[str]:
    """Names of the profiles in the AWS configuration files of this machine.

    Raises:
        ConfigError: these files cannot be used.
    """
    return list(new_session().available_profiles)


class ChainResolver:
    """Tries the providers of a chain in order and keeps the first that answers, like Java's.

    A provider that fails is passed over, and logged where a later one has credentials.
    """

    def __init__(self, session: Session, chain: CredentialChain, region: str | None) -> None:
        self._chain = chain
        self._loaders = [(step, _loader(session, step, region)) for step in chain.steps]
        self._session = session
        self._anonymous: bool | None = None
        self._failures: dict[CredentialStep, str] = {}

    def __str__(self) -> str:
        return str(self._chain)

    def load_credentials(self) -> Credentials | None:
        """The hook that botocore calls when the first client is made."""
        found, _ = self._first()
        return found

    def is_anonymous(self) -> bool:
        """True when an anonymous entry comes before any that has credentials."""
        if self._anonymous is None:
            sources = [step.source for step in self._chain.steps]
            self._anonymous = CredentialSource.ANONYMOUS in sources and self._first()[1]
        return self._anonymous

    def why_none(self) -> str:
        """Why no provider had any at the last request; the remedy if none of them has failed."""
        if len(self._chain.steps) == 1 and self._failures:
            return next(iter(self._failures.values()))
        if self._failures:
            return "; ".join(f"{step} failed: {why}" for step, why in self._failures.items())
        return (
            "give this process AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile or a role,"
            " or name another provider"
        )

    def _first(self) -> tuple[Credentials | None, bool]:
        self._failures.clear()
        for step, load in self._loaders:
            if step.source is CredentialSource.ANONYMOUS:
                return None, True
            why = partial(_why, self._session, step.profile)
            try:
                credentials = renewed(load, why)
            except Exception as error:  # noqa: BLE001 - see why_failed()
                self._failures[step] = why(error)
                continue
            if credentials is not None:
                # If none has any, the error that ends the start has the reason.
                for failed, text in self._failures.items():
                    _log.warning("credentials provider %s failed: %s", failed, text)
                _log.info("using credentials of %s", step)
                return credentials, False
        return None, False


class DatedSession(Session):  # type: ignore[misc]
    """A session whose clients, those for roles too, sign at the time of their service if they must."""

    def create_client(self, service_name: str, *args: Any, **keys: Any) -> BaseClient:
        """As of botocore."""
        client = super().create_client(service_name, *args, **keys)
        service_clock_of(client, is_endpoint_named=keys.get("endpoint_url") is not None)
        return client


def new_session() -> Session:
    """A botocore session of this process's environment, its configuration files read.

    Raises:
        ConfigError: these files cannot be used.
    """
    session = DatedSession()
    try:
        session.get_scoped_config()
        session.register_component("data_loader", PlainLoader(session.get_component("data_loader")))
    except BotoCoreError as error:
        raise ConfigError(f"the AWS configuration cannot be used: {error}") from None
    return session


def _loader(
    session: Session, step: CredentialStep, region: str | None
) -> Callable[[], Credentials | None]:
    def from_default_chain(method: str) -> Callable[[], Credentials | None]:
        """One provider of botocore's own chain, configured as botocore does it."""
        return lambda: _default_chain(session, region).get_provider(method).load()

    if step.role is not None:
        return _assume_role(session, step.role, region)
    loaders: dict[CredentialSource, Callable[[], Credentials | None]] = {
        CredentialSource.DEFAULT: lambda: _default_chain(session, region).load_credentials(),
        CredentialSource.ENVIRONMENT: lambda: EnvProvider().load(),
        CredentialSource.PROFILE: lambda: _from_profile(step.profile, region),
        CredentialSource.INSTANCE: from_default_chain("iam-role"),
        CredentialSource.CONTAINER: from_default_chain("container-role"),
        CredentialSource.WEB_IDENTITY: from_default_chain("assume-role-with-web-identity"),
        CredentialSource.ANONYMOUS: lambda: None,
    }
    return loaders[step.source]


def _default_chain(session: Session, region: str | None) -> CredentialResolver:
    """The chain of botocore, with a time limit for ``credential_process``."""
    chain = create_credential_resolver(session, region_name=region)
    limited = ProcessProvider(
        profile_name=session.get_config_variable("profile") or "default",
        load_config=lambda: session.full_config,
        popen=LimitedProcess,
    )
    chain.providers[:] = [
        limited if isinstance(provider, ProcessProvider) else provider
        for provider in chain.providers
    ]
    return chain


class LimitedProcess(subprocess.Popen[bytes]):
    """A program whose answer comes in time or not at all."""

    def communicate(self, *_: Any, **__: Any) -> tuple[bytes, bytes]:
        """The output of both pipes.

        Raises:
            CredentialRetrievalError: it took too long, and was killed; what it has started itself
                was not.
        """
        try:
            return super().communicate(timeout=PROCESS_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(_GONE_S)
            for pipe in (self.stdout, self.stderr):
                if pipe is not None:
                    pipe.close()
            command: Any = self.args
            # Without its arguments: a password may be among them.
            name = f"{command[0]} ..." if len(command) > 1 else str(command[0])
            raise CredentialRetrievalError(
                provider=ProcessProvider.METHOD,
                error_msg=f'the program "{name}" did not end within {PROCESS_LIMIT_S:g} s, and was'
                " killed",
            ) from None


def _why(session: Session, profile: str | None, error: Exception) -> str:
    """Why a provider failed; for a missing SSO login also the remedy, which botocore's text lacks."""
    if not isinstance(error, SSOError | TokenRetrievalError):
        return why_failed(error)
    profiles: dict[str, dict[str, Any]] = session.full_config.get("profiles", {})
    name = profile or session.get_config_variable("profile") or "default"
    seen = {name}
    while "source_profile" in (settings := profiles.get(name, {})) and not _is_sso(settings):
        name = settings["source_profile"]
        if name in seen:
            break
        seen.add(name)
    return f"{str(error).rstrip('.')}. Log in: aws sso login --profile {shlex.quote(name)}"


def _is_sso(settings: dict[str, Any]) -> bool:
    return "sso_session" in settings or "sso_start_url" in settings


#: botocore's providers that are about the machine or the process, not about a profile.
_NOT_OF_A_PROFILE = {"env", "ec2-credentials-file", "boto-config", "container-role", "iam-role"}


def _from_profile(profile: str | None, region: str | None) -> Credentials | None:
    """Keys, role, SSO or process of one profile, and of nothing else."""
    name = profile or os.environ.get("AWS_PROFILE") or "default"
    session = DatedSession(profile=name)
    for provider in _default_chain(session, region).providers:
        if provider.METHOD in _NOT_OF_A_PROFILE:
            continue
        credentials: Credentials | None = provider.load()
        if credentials is not None:
            return credentials
    return None


def _assume_role(
    session: Session, role: AssumedRole, region: str | None
) -> Callable[[], Credentials | None]:
    # Java stops at its SDK's default region; the file's regionName serves as well.
    sts_region = role.region or region
    if sts_region is None:
        raise ConfigError(
            f"no region for STS is known: write endpointRegion=<region> after {role.arn}",
            key="AwsCredentialsProvider",
        )
    extra = {"RoleSessionName": role.session_name}
    if role.external_id is not None:
        extra["ExternalId"] = role.external_id

    def create_client(service: str, **keys: Any) -> Any:
        return session.create_client(
            service, region_name=sts_region, endpoint_url=role.endpoint, **keys
        )

    source: Credentials | None = None

    def load() -> Credentials | None:
        nonlocal source
        # Kept, so that its keys serve until they expire.
        source = source or renewed(
            lambda: _default_chain(session, sts_region).load_credentials(),
            partial(_why, session, None),
        )
        if source is None:
            return None
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=create_client,
            source_credentials=source,
            role_arn=role.arn,
            extra_args=extra,
        )
        return DeferredRefreshableCredentials(
            refresh_using=fetcher.fetch_credentials, method="assume-role"
        )

    return load


def _sign_nothing(session: Session) -> None:
    session.set_default_client_config(Config(signature_version=UNSIGNED))


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


_READ: dict[str, Callable[[str], bytes]] = {
    ".json": _read,
    ".json.gz": lambda path: gzip.decompress(_read(path)),
}


class PlainJsonFiles(JSONFileLoader):  # type: ignore[misc]
    """The ``file_loader`` of a botocore loader; finds the same files as its own."""

    def load_file(self, file_path: str) -> Any:
        """The contents of a file; None = there is none.

        Args:
            file_path: without its suffix, ``.json`` or ``.json.gz``.
        """
        for suffix, read in _READ.items():
            path = file_path + suffix
            if os.path.isfile(path):
                return msgspec.json.decode(read(path))
        return None


class PlainLoader(Loader):  # type: ignore[misc]
    """The ``data_loader`` of a botocore session.

    Args:
        like: the one that the session had; files are searched in the same places.
    """

    def __init__(self, like: Loader) -> None:
        super().__init__(
            extra_search_paths=list(like.search_paths),
            file_loader=PlainJsonFiles(),
            include_default_search_paths=False,
        )

    def list_available_services(self, type_name: str) -> list[str]:  # noqa: ARG002
        """Services that have any data; one without that type is reported when it is read.

        A folder that may not be read counts as empty: HOME may be that of another user.
        """
        found: set[str] = set()
        for folder in self.search_paths:
            with contextlib.suppress(OSError):
                found.update(os.listdir(folder))
        return sorted(found)
