"""What overrides the addresses of AWS, and which policies ``kcl-mld iam`` prints."""

from __future__ import annotations

import json

import pytest

from kcl_mld.aws.regions import find_region
from kcl_mld.cli import dispatch
from kcl_mld.cli.doctor_facts import endpoint_origin
from tests.unit.config.test_config_build import BASE


@pytest.fixture
def profile(tmp_path, monkeypatch):
    """Writes the AWS configuration file."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "config"
    monkeypatch.setenv("AWS_CONFIG_FILE", str(file))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return file.write_text


def test_endpoints_of_environment_and_profile(profile):
    profile("[default]\nservices = local\n[services local]\nkinesis =\n  endpoint_url = http://k\n")
    assert endpoint_origin("kinesis", {}) == "profile default"
    assert endpoint_origin("dynamodb", {}) is None
    both = {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_KINESIS": "http://b"}
    assert endpoint_origin("kinesis", both) == "environment AWS_ENDPOINT_URL_KINESIS"
    assert endpoint_origin("dynamodb", both) == "environment AWS_ENDPOINT_URL"
    profile("[default]\nendpoint_url = http://k\n")
    assert endpoint_origin("dynamodb", {}) == "profile default"
    profile("[default]\nendpoint_url = http://k\nignore_configured_endpoint_urls = true\n")
    assert endpoint_origin("dynamodb", both) is None


def test_where_the_region_comes_from(profile, monkeypatch):
    profile("[default]\nregion = eu-west-1\n")
    assert find_region("us-east-1") == ("us-east-1", "the properties file")
    assert find_region(None, {"AWS_REGION": "us-east-2"}) == ("us-east-2", "AWS_REGION")
    assert find_region(None, {}) == ("eu-west-1", "the profile")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-west-1")
    assert find_region(None) == ("us-west-1", "AWS_DEFAULT_REGION")


@pytest.fixture
def file(tmp_path):
    """Writes a properties file and returns its path."""

    def write(**more):
        path = tmp_path / "app.properties"
        entries = BASE | {"retrievalMode": "POLLING"} | more
        path.write_text("".join(f"{key} = {value}\n" for key, value in entries.items()))
        return str(path)

    return write


def test_a_policy_has_the_account_that_is_known(file, capsys):
    assert dispatch(["iam", file(), "--role", "viewer"]) == 0
    captured = capsys.readouterr()
    assert ":us-east-1:*:table/app" in captured.out
    assert "--account" in captured.err
    assert dispatch(["iam", file(), "--role", "viewer", "--account", "123456789012"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["Statement"][1]["Resource"] == [
        "arn:aws:dynamodb:us-east-1:123456789012:table/app"
    ]
    assert not captured.err
    arn = "arn:aws:kinesis:us-east-1:210987654321:stream/abc"
    assert dispatch(["iam", file(streamArn=arn), "--role", "viewer"]) == 0
    assert ":210987654321:table/app" in capsys.readouterr().out
    assert dispatch(["iam", file(streamArn=arn, streamArnAddressing="arn"), "--role=viewer"]) == 0
    assert ":*:table/app" in capsys.readouterr().out


@pytest.mark.parametrize("wrong", [("--account", "12"), ("--kms-key", "alias/x"), ("--role", "x")])
def test_what_is_no_account_or_key_is_refused(file, capsys, wrong):
    assert dispatch(["iam", file(), "--role", "worker", *wrong]) == 2
    assert wrong[1] in capsys.readouterr().err


def test_a_policy_may_be_too_long_for_one(file, capsys):
    key = "arn:aws:kms:us-east-1:123456789012:key/" + "a" * 36
    keys = [word for _ in range(90) for word in ("--kms-key", key)]
    assert dispatch(["iam", file(), "--role", "worker", *keys]) == 0
    assert "6144" in capsys.readouterr().err
