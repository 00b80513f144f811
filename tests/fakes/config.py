"""A configuration as small as it can be."""

from __future__ import annotations

from typing import Any

from kcl_mld.config.config import AwsConfig, ChildConfig, Config, LeaseConfig, StreamConfig
from kcl_mld.config.credentials import CredentialChain


def config_with(**sections: Any) -> Config:
    """The application ``app`` on the stream ``s``, and what the test says."""
    usual = {
        "application_name": "app",
        "worker_id": "me",
        "stream": StreamConfig(name="s"),
        "aws": AwsConfig(kinesis_credentials=CredentialChain(())),
        "leases": LeaseConfig(table_name="app"),
        "child": ChildConfig(argv=("app",)),
    }
    return Config(**(usual | sections))
