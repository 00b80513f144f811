"""``kcl-mld iam --role acceptance``, which has no properties file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from kcl_mld.cli import dispatch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


def test_the_policy_of_an_acceptance_run_is_limited_to_the_prefix(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["--role", "acceptance", "--account", "123456789012", "--prefix", "trial"]
    assert dispatch(["iam", *arguments]) == 0
    answer = capsys.readouterr()
    (streams,) = (s for s in json.loads(answer.out)["Statement"] if s["Sid"] == "Streams")
    assert streams["Resource"][0] == "arn:aws:kinesis:eu-west-1:123456789012:stream/trial-*"
    assert not answer.err


def test_an_unknown_account_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch(["iam", "--role", "acceptance"]) == 0
    answer = capsys.readouterr()
    assert "arn:aws:kinesis:eu-west-1:*:stream/kcl-mld-acceptance-*" in answer.out
    assert "write --account ID" in answer.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--role", "acceptance", "--old-tables"], "--account, --prefix and --bucket only"),
        (["--role", "acceptance", "--prefix", "Mine_"], "'Mine_' is not 3 to 40 of"),
        (["--role", "acceptance", "--account", "12"], "not an account id"),
        (["--role", "worker"], "Properties file missing"),
    ],
)
def test_what_makes_no_sense_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    assert dispatch(["iam", *arguments]) == 2
    assert told in capsys.readouterr().err


def test_a_file_has_no_prefix(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = str(tmp_path / "app.properties")
    assert dispatch(["iam", file, "--role", "worker", "--prefix", "trial"]) == 2
    assert "--prefix and --bucket are of the role acceptance" in capsys.readouterr().err
    assert dispatch(["iam", file, "--role", "acceptance"]) == 2
    assert "--account, --prefix and --bucket only" in capsys.readouterr().err
