"""Which region the clients call, and which there are."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from botocore.loaders import create_loader
from botocore.regions import EndpointResolver
from botocore.utils import InstanceMetadataRegionFetcher

from mld.adapters.aws.credentials import new_session
from mld.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Time for one look at the instance's metadata service when nothing else names a region.
_METADATA_TIMEOUT_S = 1.0


def resolve_region(configured: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """The region of the clients: the file, ``AWS_REGION``, the profile, the instance; in this order.

    Raises:
        ConfigError: nothing names a region: write ``regionName``; or the AWS configuration files
            cannot be used.
    """
    region = configured or environ.get("AWS_REGION")
    region = region or new_session().get_config_variable("region")
    if not region and environ.get("AWS_EC2_METADATA_DISABLED", "").lower() != "true":
        region = _instance_region()
    if not region:
        raise ConfigError(
            "no region is known: write regionName = <region>, or set AWS_REGION", key="regionName"
        )
    return str(region)


def known_regions() -> list[str]:
    """All regions that have Kinesis, of all partitions, sorted; a newer botocore may know more.

    Takes a tenth of a second.
    """
    resolver = EndpointResolver(create_loader().load_data("endpoints"))
    partitions = resolver.get_available_partitions()
    return sorted(
        name for one in partitions for name in resolver.get_available_endpoints("kinesis", one)
    )


def _instance_region() -> str | None:
    region: str | None = InstanceMetadataRegionFetcher(
        timeout=_METADATA_TIMEOUT_S, num_attempts=1
    ).retrieve_region()
    return region
