"""botocore's providers of profiles, changed wherever botocore makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from botocore.credentials import AssumeRoleProvider

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.credentials import CredentialResolver


def change_providers(
    chain: CredentialResolver, kind: type, maker: str, change: Callable[[Any], Any]
) -> None:
    """Change the providers of a kind: those of a chain, and those behind a role of another profile.

    Args:
        chain: of botocore.
        kind: class of the providers.
        maker: name of the method that makes one for a role's other profile.
        change: gives the provider back.
    """
    # Not promised by botocore: where it keeps them, and who makes those for other profiles.
    for provider in chain.providers:
        if isinstance(provider, kind):
            change(provider)
        if isinstance(provider, AssumeRoleProvider):
            builder = provider._profile_provider_builder  # noqa: SLF001
            setattr(builder, maker, _changed(getattr(builder, maker), change))


def _changed(make: Callable[[Any], Any], change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda profile: change(make(profile))
