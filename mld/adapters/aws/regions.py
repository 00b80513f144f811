"""The regions that this botocore knows; a newer one may know more."""

from __future__ import annotations

from botocore.loaders import create_loader
from botocore.regions import EndpointResolver


def known_regions() -> list[str]:
    """Names of all regions of all partitions that have Kinesis, sorted. Takes a tenth of a second."""
    resolver = EndpointResolver(create_loader().load_data("endpoints"))
    partitions = resolver.get_available_partitions()
    return sorted(
        name for one in partitions for name in resolver.get_available_endpoints("kinesis", one)
    )
