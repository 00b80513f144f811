"""Where the region comes from, and which there are."""

import pytest

from mld.adapters.aws.regions import _instance_region, known_regions, resolve_region
from mld.errors import ConfigError

pytestmark = pytest.mark.usefixtures("machine")


@pytest.mark.parametrize(
    ("configured", "environment", "region"),
    [
        ("us-west-2", {"AWS_REGION": "us-east-1"}, "us-west-2"),
        (None, {"AWS_REGION": "us-east-1", "AWS_DEFAULT_REGION": "eu-west-1"}, "us-east-1"),
        (None, {"AWS_DEFAULT_REGION": "eu-west-1"}, "eu-west-1"),
        (None, {"AWS_PROFILE": "dev"}, "eu-central-1"),
    ],
)
def test_the_region_comes_from_file_environment_or_profile(
    monkeypatch, configured, environment, region
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert resolve_region(configured) == region


def test_no_region_anywhere_is_a_configuration_error():
    with pytest.raises(ConfigError, match="write regionName = <region>, or set AWS_REGION"):
        resolve_region(None)


def test_the_instance_may_name_the_region(monkeypatch):
    monkeypatch.setattr("mld.adapters.aws.regions._instance_region", lambda: "sa-east-1")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    assert resolve_region(None) == "sa-east-1"


def test_a_profile_that_does_not_exist_is_a_configuration_error(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match=r"AWS configuration cannot be used: .*nobody"):
        resolve_region(None)


def test_an_instance_whose_metadata_is_disabled_names_no_region():
    assert _instance_region() is None


def test_the_regions_of_all_partitions_are_known():
    known = known_regions()
    assert {"us-east-1", "cn-north-1", "us-gov-west-1"} < set(known)
    assert known == sorted(known)
