"""The machine on which credentials and regions are looked for."""

import pytest

from tests.unit.aws.sessions import renewals_end

PROFILE_SECRET = "profile-secret-geheim"


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A machine with nothing but two profiles; nobody asks for keys any more when it is gone."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = DEFAULTKEY\naws_secret_access_key = x\n"
        f"[dev]\naws_access_key_id = DEVKEY\naws_secret_access_key = {PROFILE_SECRET}\n"
    )
    (tmp_path / "config").write_text("[profile dev]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    yield
    renewals_end()
