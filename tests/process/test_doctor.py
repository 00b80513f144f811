"""``kcl-mld doctor``: what it says of services, tables, clocks and children that were made to be so."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from kcl_mld.local.embedded import EmbeddedAws
from tests.process.daemon import Application, wait_until
from tests.process.test_explain import READS, properties_of, typed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.process

ANSWERS = "import sys\nfor line in sys.stdin:\n    action = line.split('\"')[3]\n"
GOOD = ANSWERS + ('    print(\'{"action":"status","responseFor":"%s"}\' % action, flush=True)\n')


def checked(
    app: Application, *arguments: str, **more: str | None
) -> tuple[int, dict[str, tuple[str, str]]]:
    """Exit code, and severity and text of each subject."""
    values: dict[str, str | None] = {"retrievalMode": "POLLING", "metricsLevel": "NONE", **more}
    done = typed(app, "doctor", "-o", "json", *arguments, str(properties_of(app, **values)))
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    found = {one["subject"]: (one["severity"], one["text"]) for one in answer["checks"]}
    assert answer["severity"] == ("error" if done.returncode else "warning"), found
    return done.returncode, found


def test_a_new_application_is_well(new_app: Callable[..., Application]) -> None:
    app = new_app(3)
    before = app.calls()
    code, found = checked(app)
    assert code == 0, found
    assert found["region"][1] == "us-east-1, from the properties file"
    assert "arn:aws:sts::" in found["credentials (AwsCredentialsProvider)"][1]
    assert "by environment AWS_ENDPOINT_URL_KINESIS" in found["endpoint kinesis"][1]
    assert "3 open shards" in found[f"stream {app.name}"][1]
    assert "first worker creates it" in found[f"table {app.name}"][1]
    assert "kinesis:GetRecords" in found["permissions"][1]
    assert "dynamodb:UpdateItem" in found["not tried"][1]
    asked = {name for name, count in app.calls().items() if count > before.get(name, 0)}
    assert asked <= {*READS, "sts.GetCallerIdentity"}
    done = typed(app, "doctor", str(properties_of(app, retrievalMode="POLLING")))
    assert done.returncode == 0, done.stdout
    assert f"  ok       stream {app.name}: ACTIVE" in done.stdout


def test_a_fleet_that_assigns_leases_has_its_index(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    run = app.start()
    wait_until(app.indexes, "the index is there")
    code, found = checked(app)
    assert code == 0, found
    assert found["index LeaseOwnerToLeaseKeyIndex"] == ("ok", "ACTIVE")
    assert "dynamodb:Query" in found["permissions"][1]
    run.kill()


def test_what_is_missing_or_denied(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    app.create_table(key="id")
    code, found = checked(app, streamName=f"{app.name}-none")
    assert code == 1
    assert found[f"stream {app.name}-none"][0] == "error"
    assert found[f"table {app.name}"][0] == "error"
    denied = {"service": "kinesis", "code": "AccessDeniedException", "contains": app.name}
    app.aws.control(faults=[{**denied, "operation": "ListShards"}])
    code, found = checked(app)
    assert code == 1
    assert "denied on stream" in found["kinesis:ListShards"][1]
    assert "kinesis:GetRecords" in found["not tried"][1]


def test_consumers_of_fan_out_and_streams_of_a_list(new_app: Callable[..., Application]) -> None:
    app, other = new_app(1), new_app(2)
    many = {"streamName": None, "multiStream": "true", "streams": f"{app.name}, {other.name}"}
    code, found = checked(app, retrievalMode="FANOUT", **many)
    assert code == 0, found
    assert found[f"consumer of {app.name}"][0] == "ok"
    assert "2 open shards" in found[f"stream {other.name}"][1]
    assert "one worker with 3 shards" in found["files"][1]
    rule = {"streamName": None, "multiStream": "true", "streamNamePattern": f"{other.name}*"}
    code, found = checked(app, **rule)
    assert code == 0, found
    assert f"stream {app.name}" not in found
    assert "kinesis:ListStreams" in found["permissions"][1]


def test_no_credentials(new_app: Callable[..., Application], tmp_path: Path) -> None:
    app = new_app(1)
    code, found = checked(app, AwsCredentialsProvider="ProfileCredentialsProvider|no-such")
    assert code == 1
    assert found["credentials (AwsCredentialsProvider)"][0] == "error"
    assert found["AWS"] == ("warning", "nothing was asked")


def test_the_clock_of_the_service(tmp_path: Path) -> None:
    with EmbeddedAws(options=("--create-s", "0.1")) as aws:
        app = Application(aws, "clock", tmp_path)
        app.create_stream(1)
        aws.control(advance_s=100)
        code, found = checked(app)
        assert (code, found["clock"][0]) == (0, "warning")
        aws.control(advance_s=300)
        code, found = checked(app)
        assert (code, found["clock"][0]) == (1, "error")
        assert "behind" in found["clock"][1]


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (GOOD, "answered initialize"),
        (ANSWERS + "    raise OSError('no database')\n", "no database"),
        (ANSWERS + "    import time\n    time.sleep(600)\n", "no answer within 3.0 s"),
        (GOOD.replace("% action", "% 'shardEnded'"), "initialize"),
    ],
)
def test_a_child_that_is_tried(
    new_app: Callable[..., Application], program: str, says: str
) -> None:
    app = new_app(1)
    (app.folder / "child.py").write_text(program)
    command = f"{sys.executable} {app.folder / 'child.py'}"
    limit_s = "3" if "600" in program else "60"
    code, found = checked(app, "--try-child", executableName=command, timeoutInSeconds=limit_s)
    severity, text = found["child"]
    assert says in text
    assert (code, severity) == ((0, "ok") if program == GOOD else (1, "error"))
    if program == GOOD:
        assert "1 child takes" in found["memory"][1]


def test_each_child_of_a_shard_counts(new_app: Callable[..., Application]) -> None:
    app = new_app(3)
    told = (
        "    import os\n    assert [*sys.argv[1:], os.environ['KCL_MLD_CHILDREN']] == ['0', '8']\n"
    )
    (app.folder / "child.py").write_text(GOOD.replace("    print", f"{told}    print"))
    command = f"{sys.executable} {app.folder / 'child.py'} {{childIndex}}"
    code, found = checked(app, "--try-child", executableName=command, childrenPerShard="8")
    assert (code, found["child"][0]) == (0, "ok"), found
    assert "one worker with 3 shards and 24 children needs about 299" in found["files"][1]
    assert "24 children take" in found["memory"][1]
