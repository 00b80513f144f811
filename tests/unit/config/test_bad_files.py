"""The recorded bad files: what the Java daemon did with each, and what kcl-mld says at start.

``1`` is Java's refusal, ``runs`` means that it was still running when the recording was stopped,
``0`` that it gave up after 20 attempts and exited as if all was well.
"""

from pathlib import Path

import pytest

from kcl_mld.config.build import build_config
from kcl_mld.config.findings import Severity

FILES = Path(__file__).parents[2] / "data" / "badconfig"

#: file -> (Java's exit, worst finding here, key it names)
VERDICTS = {
    "bad-bool": ("runs", "warning", "cleanupLeasesUponShardCompletion"),
    "bad-credsprovider": ("1", "error", "AwsCredentialsProvider"),
    "bad-initialPosition": ("1", "error", "initialPositionInStream"),
    "bad-logconf": ("1", None, None),  # wrong on its command line, not in the file
    "bad-maxActiveThreads": ("1", "error", "maxActiveThreads"),
    "bad-metricsLevel": ("1", "error", "metricsLevel"),
    "bad-region": ("runs", "warning", "regionName"),
    "bad-retrievalMode": ("1", "error", "retrievalMode"),
    "bad-streamArn": ("1", "error", "streamArn"),
    "colon-syntax": ("runs", None, None),
    "empty-file": ("1", "error", "executableName"),
    "empty-region": ("1", "error", "regionName"),
    "lowercase-credskey": ("runs", None, None),
    "malformed-int": ("runs", "warning", "maxRecords"),
    "malformed-int-failover": ("runs", "warning", "failoverTimeMillis"),
    "malformed-long-empty": ("runs", "warning", "failoverTimeMillis"),
    "maxLeases-negative": ("1", "error", "maxLeasesForWorker"),
    "maxRecords-too-big": ("1", "error", "maxRecords"),
    "maxRecords-zero": ("runs", "warning", "maxRecords"),
    "missing-file": ("1", None, None),  # command line
    "missing-stream": ("runs", None, None),  # found at start
    "no-applicationName": ("1", "error", "applicationName"),
    "no-args": ("1", None, None),  # command line
    "no-credentials": ("1", "error", "AwsCredentialsProvider"),
    "no-executableName": ("1", "error", "executableName"),
    "no-region": ("runs", None, None),
    "no-streamName": ("1", "error", "streamName"),
    "positional": ("1", None, None),  # command line
    "timeout-bad": ("runs", "error", "timeoutInSeconds"),  # Java halts at the first message
    "trailing-space-int": ("runs", None, None),
    "two-positional": ("1", None, None),  # command line
    "unknown-key": ("runs", "warning", "fooBarUnknown"),
    "unknown-option": ("1", None, None),  # command line
    "unreachable-ddb": ("0", None, None),  # found at start
    "unreachable-kinesis": ("runs", None, None),  # found at start
}


def recorded_exits():
    lines = (FILES / "exit_codes.txt").read_text().splitlines()
    return {name: code for name, code, *_ in (line.split() for line in lines)}


def test_every_recorded_file_has_a_verdict():
    assert {path.stem for path in FILES.glob("*.properties")} == set(VERDICTS)
    assert len(VERDICTS) == 35


@pytest.mark.parametrize(
    ("name", "java"), [(name, verdict[0]) for name, verdict in VERDICTS.items()]
)
def test_javas_exit_is_the_recorded_one(name, java):
    assert recorded_exits()[name] == {"runs": "rc=-9", "1": "rc=1", "0": "rc=0"}[java]


@pytest.mark.parametrize(
    ("name", "worst", "key"), [(name, *verdict[1:]) for name, verdict in VERDICTS.items()]
)
def test_our_verdict_names_the_key(name, worst, key):
    result = build_config((FILES / f"{name}.properties").read_bytes(), name, worker_id="w")
    ranks = [Severity.ERROR, Severity.WARNING]
    weighty = [finding for finding in result.findings if finding.severity in ranks]
    weighty.sort(key=lambda finding: ranks.index(finding.severity))
    assert (weighty[0].severity if weighty else None) == worst
    assert (weighty[0].key if weighty else None) == key
    assert (result.config is None) is (worst == "error")


@pytest.mark.parametrize(
    "name", [name for name, (java, worst, _) in VERDICTS.items() if java == "1" and worst]
)
def test_whatever_java_refuses_because_of_the_file_is_refused(name):
    assert VERDICTS[name][1] == "error"
