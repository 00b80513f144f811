"""The command of a Java worker, by the jars of the user."""

import pytest

from kcl_mld.acceptance.fleet import StageFailed
from kcl_mld.acceptance.java_worker import java_worker


@pytest.mark.parametrize(
    ("version", "provider"),
    [("2.5.4", "DefaultAWSCredentialsProviderChain"), ("2.7.2", None), ("3.5.1", None)],
)
def test_the_version_of_the_jar_decides_the_name_of_the_provider(tmp_path, version, provider):
    (tmp_path / f"amazon-kinesis-client-multilang-{version}.jar").touch()
    (tmp_path / "other-1.0.jar").touch()
    command, changes = java_worker("/usr/bin/java", tmp_path)
    assert command[:3] == ["/usr/bin/java", "-cp", f"{tmp_path}/*"]
    assert command[-1] == "--properties-file"
    assert changes.get("AWSCredentialsProvider") == provider
    assert changes["clientVersionConfig"] == "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X"


def test_without_a_multilang_daemon_of_2_or_later_the_stage_fails(tmp_path):
    with pytest.raises(StageFailed, match="has no amazon-kinesis-client-multilang"):
        java_worker("java", tmp_path)
    (tmp_path / "amazon-kinesis-client-multilang-1.15.jar").touch()
    with pytest.raises(StageFailed, match=r"KCL 1\.x"):
        java_worker("java", tmp_path)
