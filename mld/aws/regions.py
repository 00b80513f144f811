"""Which region the clients call, and which there are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError
from botocore.loaders import create_loader
from botocore.regions import EndpointResolver
from botocore.utils import BadIMDSRequestError, IMDSRegionProvider

from kcl_mld.aws.credentials import new_session
from kcl_mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.session import Session


def resolve_region(configured: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The region of the clients; the arguments and errors are those of :func:`find_region`."""
    return find_region(configured, environ)[0]


def find_region(configured: str | None, environ: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The region of the clients, and what names it.

    It is the file, ``AWS_REGION``, ``AWS_DEFAULT_REGION``, the profile, or the instance; in this
    order.

    Raises:
        ConfigError: nothing names a region; or the AWS configuration files
            cannot be used.
    """
    if configured:
        return configured, "the properties file"
    if environ.get("AWS_REGION"):
        return environ["AWS_REGION"], "AWS_REGION"
    session = new_session()
    region = session.get_config_variable("region")
    origin = "AWS_DEFAULT_REGION" if region == environ.get("AWS_DEFAULT_REGION") else "the profile"
    if not region and environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
        region, origin = _instance_region(session), "the instance metadata"
    if not region:
        raise ConfigError(
            "no region is known: set AWS_REGION, or write regionName = <region> in the properties file",
            key="regionName",
        )
    return str(region), origin


def known_regions() -> list[str]:
    """All regions that have Kinesis, of all partitions, sorted; a newer botocore may know more.

    Takes a tenth of a second.
    """
    resolver = EndpointResolver(create_loader().load_data("endpoints"))
    partitions = resolver.get_available_partitions()
    return sorted(
        name for one in partitions for name in resolver.get_available_endpoints("kinesis", one)
    )


def _instance_region(session: Session) -> str | None:
    """By the metadata service where credentials are asked for, too: address, IPv6 mode, time-out.

    Raises:
        ConfigError: the settings have no valid address or time limit.
    """
    try:
        region: str | None = IMDSRegionProvider(session).provide()
    except (BotoCoreError, ValueError) as error:
        raise ConfigError(f"the AWS configuration cannot be used: {error}") from None
    except BadIMDSRequestError:
        return None
    return region
