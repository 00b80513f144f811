"""An SSO login that is missing or has run out: the error says how to log in again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from botocore.credentials import SSOProvider
from botocore.exceptions import SSOError, TokenRetrievalError

from mld.adapters.aws.credential_keys import UselessKeys
from mld.adapters.aws.profile_providers import change_providers

if TYPE_CHECKING:
    from botocore.credentials import CredentialResolver


def explain_logins(chain: CredentialResolver) -> None:
    """Let the SSO profiles of a chain of botocore, also those behind its roles, say how to log in.

    botocore's own errors name a file's key or an address, and not the profile that has them.
    """
    change_providers(chain, SSOProvider, "_create_sso_provider", _explain)


def _explain(provider: Any) -> Any:
    load = provider.load  # what it gives is not promised by botocore either

    def explained() -> Any:
        credentials = load()
        if credentials is not None:
            fetcher = credentials._refresh_using.__self__  # noqa: SLF001
            ask = fetcher._get_credentials  # noqa: SLF001
            profile = provider._profile_name  # noqa: SLF001
            # Below the fetcher's memory, which stays in force.
            fetcher._get_credentials = lambda: _asked(ask, profile)  # noqa: SLF001
        return credentials

    provider.load = explained
    return provider


def _asked(ask: Any, profile: str) -> Any:
    try:
        return ask()
    except (SSOError, TokenRetrievalError) as error:
        raise UselessKeys(
            f"{str(error).rstrip('.')}. Log in: aws sso login --profile {shlex.quote(profile)}"
        ) from error
