"""Where the region comes from, and which there are."""

from http.server import BaseHTTPRequestHandler

import pytest
from botocore.exceptions import EndpointConnectionError

from kcl_mld.aws.credentials import new_session
from kcl_mld.aws.regions import _instance_region, known_regions, resolve_region
from kcl_mld.errors import ConfigError
from tests.fakes.http import Replies, served

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
    with pytest.raises(
        ConfigError, match="set AWS_REGION, or write regionName = <region> in the properties file"
    ):
        resolve_region(None)


def test_the_instance_may_name_the_region(monkeypatch):
    monkeypatch.setattr("kcl_mld.aws.regions._instance_region", lambda _: "sa-east-1")
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    assert resolve_region(None) == "sa-east-1"


def test_a_profile_that_does_not_exist_is_a_configuration_error(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(ConfigError, match=r"AWS configuration cannot be used: .*nobody"):
        resolve_region(None)


def test_an_instance_whose_metadata_is_disabled_names_no_region():
    assert _instance_region(new_session()) is None


class Metadata(Replies, BaseHTTPRequestHandler):
    """The metadata service of an instance in eu-south-2."""

    status = 200

    def do_PUT(self) -> None:
        self._answer(b"token")

    def do_GET(self) -> None:
        self._answer(b"eu-south-2a" if "availability-zone" in self.path else b"")

    def _answer(self, body: bytes) -> None:
        self.reply(self.status, body)


def test_the_metadata_service_is_where_the_environment_says(monkeypatch):
    with served(Metadata) as address:
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", address)
        assert resolve_region(None) == "eu-south-2"


def test_the_metadata_service_may_be_asked_by_ipv6(monkeypatch):
    asked = []

    def get(self, request):
        asked.append(request.url)
        raise EndpointConnectionError(endpoint_url=request.url)

    monkeypatch.setattr("botocore.httpsession.URLLib3Session.send", get)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "IPv6")
    with pytest.raises(ConfigError):
        resolve_region(None)
    assert asked
    assert all(url.startswith("http://[fd00:ec2::254]/") for url in asked)


def test_a_metadata_service_that_refuses_names_no_region(monkeypatch):
    monkeypatch.setattr(Metadata, "status", 400)
    with served(Metadata) as address:
        monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", address)
        with pytest.raises(ConfigError, match="no region is known"):
            resolve_region(None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", "ipv5"),
        ("AWS_EC2_METADATA_SERVICE_ENDPOINT", "no url"),
        ("AWS_METADATA_SERVICE_TIMEOUT", "long"),
    ],
)
def test_settings_of_the_metadata_service_that_make_no_sense_are_an_error(monkeypatch, name, value):
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"the AWS configuration cannot be used: .*{value}"):
        resolve_region(None)


def test_the_regions_of_all_partitions_are_known():
    known = known_regions()
    assert {"us-east-1", "cn-north-1", "us-gov-west-1"} < set(known)
    assert known == sorted(known)
