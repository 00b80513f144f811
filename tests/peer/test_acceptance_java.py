"""The Java stage of ``kcl-mld acceptance``, with the unmodified MultiLangDaemon."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from kcl_mld.acceptance.account import Account
from kcl_mld.acceptance.budget import Budget
from kcl_mld.acceptance.clients import Clients, Pace
from kcl_mld.acceptance.options import Names, Options, Stage
from kcl_mld.acceptance.proof import run_proof
from kcl_mld.acceptance.recording import RunRecording
from kcl_mld.acceptance.resources import Resources
from kcl_mld.acceptance.rules.judge import judge
from tests.peer import fetched
from tests.peer.fleet import REGION

pytestmark = pytest.mark.peer

#: What Java finds on AWS by itself: its SDK takes no endpoint from the environment.
_WRAPPER = """\
#!/bin/sh
for file; do :; done
printf 'kinesisEndpoint = %s\\ndynamoDBEndpoint = %s\\n' {kinesis} {dynamodb} >> "$file"
exec {java} -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 "$@"
"""


@pytest.mark.parametrize("version", fetched.MULTILANG)
def test_java_and_ours_take_turns_and_nothing_is_lost(stand_in, tmp_path, monkeypatch, version):
    try:
        jars = fetched.multilang(version).removesuffix("/*")
    except fetched.Unavailable as error:
        pytest.skip(str(error))
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in stand_in.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL_KINESIS", stand_in.kinesis_url)
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", stand_in.dynamodb_url)
    java = tmp_path / "java"
    text = _WRAPPER.format(
        kinesis=stand_in.kinesis_url,
        dynamodb=stand_in.dynamodb_url,
        java=shlex.quote(str(shutil.which("java"))),
    )
    java.write_text(text)
    java.chmod(0o755)
    names = Names(prefix=f"java-{version.replace('.', '-')}", run_id="0123456789")
    options = Options(
        region=REGION,
        account="000000000000",
        names=names,
        limit_s=1500,
        limit_usd=1,
        stages=frozenset({Stage.JAVA}),
        directory=tmp_path,
        java=str(java),
        jars=jars,
        endpoints=dict.fromkeys(("kinesis", "dynamodb"), "127.0.0.1"),
    )
    kinesis = stand_in.client("kinesis")
    kinesis.create_stream(StreamName=names.stream, ShardCount=2)
    clients = Clients(REGION, Pace(0.05))
    budget = Budget(options.limit_s, options.limit_usd, 0.0)
    account = Account(clients, options.account)
    resources = Resources(options, clients, account, budget, print)
    resources.wait_active()
    recording = RunRecording(Path(tmp_path, "recording.jsonl"))
    run_proof(options, resources, budget, recording, print)
    report = judge(recording.lines())
    assert report.faults == []
    assert {one.name: one.outcome for one in report.stages}["java"] == "passed"
    figures = report.readers[names.java_application]
    assert figures.workers == 3
    assert figures.received == figures.put > 0
    workers = {line["worker"] for line in recording.lines() if line["what"] == "got"}
    assert "java-theirs" in workers
