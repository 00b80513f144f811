"""Cases for the daemon kit: keys that a daemon starts with, and what they come to."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from protocol.conform.report import (
    Finding,
    Verdict,
    differs,
    failed,
    judged,
    not_testable,
    passed,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.daemon import DaemonKit

#: item, changed properties, what the evidence adds. The daemon has to start all the same.
_STARTS: Final[tuple[tuple[str, dict[str, str | None], str], ...]] = (
    ("CFG-06", {"streamArn": "   "}, "a blank streamArn is ignored"),
    (
        "CFG-15",
        {"FailoverTimeMillis": "1", "fooBar": "1", "billingMode": "PROVISIONED"},
        "unknown keys have no effect",
    ),
    (
        "CFG-16",
        {
            "AWSCredentialsProvider": None,
            "awscredentialsprovider": "EnvironmentVariableCredentialsProvider",
        },
        "the key is recognized in lower case",
    ),
    (
        "CFG-17",
        {"awscredentialsproviderdynamodb": "Nonsense"},
        "the lower-case DynamoDB key is ignored",
    ),
    ("CFG-39", {"workerId": None}, "without a workerId"),
    ("CRED-01", {}, "the default chain found the environment's credentials"),
    (
        "CRED-02",
        {"AWSCredentialsProvider": "ABCD, EnvironmentVariableCredentialsProvider"},
        "the unknown name was skipped",
    ),
)

#: item, property, value in the file, effective value, what Java's log says of it.
_EFFECTIVE: Final = (
    ("CFG-09", "failoverTimeMillis", "100nf", "10000", "With failover time 10000 ms"),
    ("CFG-11", "failoverTimeMillis", "20000   ", "20000", "With failover time 20000 ms"),
    ("CFG-12", "cleanupLeasesUponShardCompletion", "false", "true", None),
    ("CFG-29", "idleTimeBetweenReadsInMillis", "50", "200", "Defaulting to minimum 200."),
    (
        "CFG-31",
        "metricsEnabledDimensions",
        "ShardId, WorkerIdentifier",
        "ShardId, WorkerIdentifier",
        None,
    ),
)

#: item, property, value. The daemon has to start; what becomes of the value cannot be seen.
_INVISIBLE: Final = (
    ("CFG-13", "isGracefulLeaseHandoffEnabled", "false"),
    ("CFG-14", "gracefulLeaseHandoffTimeoutMillis", "junk"),
    ("CFG-32", "workerMetricsTags", "a=b, c = d ,e"),
)


def accepted_properties(kit: DaemonKit) -> Iterator[Finding]:
    """Properties files with oddities that a daemon starts with."""
    for number, (item_id, changes, note) in enumerate(_STARTS):
        name = f"ok{number}"
        kit.cloud.create_stream(name, 1)
        with kit.start(name, changes) as run:
            yield kit.started(item_id, run, note)


def effective_values(kit: DaemonKit) -> Iterator[Finding]:
    """What a value comes to: Java logs some of them, ``kcl-mld validate`` shows them all."""
    for number, (item_id, key, value, wanted, logged) in enumerate(_EFFECTIVE):
        name = f"effective{number}"
        kit.cloud.create_stream(name, 1)
        with kit.start(name, {key: value}) as run:
            finding = kit.started(item_id, run)
            if finding.verdict is not Verdict.PASS:
                yield finding
            elif not kit.is_java:
                yield judged(item_id, *_validated(kit, name, key, wanted))
            elif logged is None:
                yield not_testable(item_id, "the daemon starts; the value does not show")
            else:
                said = "says" if logged in run.output else "does not say"
                yield judged(item_id, logged in run.output, f"its log {said}: {logged}")


def _validated(kit: DaemonKit, name: str, key: str, wanted: str) -> tuple[bool, str]:
    """Whether ``validate`` says that the file of a run has this value, and what it says."""
    path = str(kit.folder_of(name) / "app.properties")
    with kit.start_with(f"{name}-validate", "validate", "--json", path, files={}) as run:
        run.exit_code(kit.limits.refuse_s)
        try:
            said = json.loads(run.stdout)["settings"][key]["value"]
        except (ValueError, KeyError, TypeError):
            return False, f"validate said {run.output.strip()!r:.60}"
    return said == wanted, f"validate: {key} is {said}"


def invisible_properties(kit: DaemonKit) -> Iterator[Finding]:
    """Values whose effect cannot be seen from outside; one start with all of them."""
    name = "invisible"
    kit.cloud.create_stream(name, 1)
    with kit.start(name, {key: value for _, key, value in _INVISIBLE}) as run:
        for item_id, _, _ in _INVISIBLE:
            finding = kit.started(item_id, run)
            if finding.verdict is Verdict.PASS:
                finding = not_testable(item_id, "the daemon starts; the value does not show")
            yield finding


def generated_worker_id(kit: DaemonKit) -> Iterator[Finding]:
    """Without a worker id the lease's owner is a fresh UUID."""
    name = "cfguuid"
    kit.cloud.create_stream(name, 1)
    with kit.start(name, {"workerId": None}) as run:
        run.wait_for_action("initialize", kit.limits.start_s)
        owners = [str(row.get("leaseOwner")) for row in kit.cloud.lease_rows(name)]
        ok = any(re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", owner) for owner in owners)
        yield judged("CFG-39", ok, f"leaseOwner {', '.join(owners)}")


def stream_arn(kit: DaemonKit) -> Iterator[Finding]:
    """Java takes only the name from an ARN, even from one of another region and account."""
    for name, account in (("cfgarn", "000000000000"), ("cfgarnother", "210987654321")):
        kit.cloud.create_stream(name, 1)
        arn = f"arn:aws:kinesis:us-east-2:{account}:stream/{name}"
        with kit.start(name, {"streamName": "str", "streamArn": arn}) as run:
            started = run.wait_for_action("initialize", kit.limits.start_s)
            code = run.exit_code(0)
            if started:
                yield passed("CFG-05", f"account {account}: the stream of that name was read")
            elif not kit.is_java and code == 2 and account.strip("0"):
                evidence = f"account {account}, another region: exit 2; 000000000000: only the name"
                yield differs("CFG-05", "stream-arn", evidence)
            else:
                yield failed("CFG-05", f"account {account}: no child; exit {code}")


def start_positions(kit: DaemonKit) -> Iterator[Finding]:
    """The first line of a child tells the position."""
    cases: tuple[tuple[str, dict[str, str | None], str], ...] = (
        ("CFG-19", {"initialPositionInStream": "TriM_Horizon"}, "TRIM_HORIZON"),
        (
            "CFG-21",
            {
                "initialPositionInStream": None,
                "initialPositionInStreamExtended": "1617406032",
            },
            "AT_TIMESTAMP",
        ),
        ("CFG-23", {"initialPositionInStream": None}, "LATEST"),
    )
    for number, (item_id, changes, wanted) in enumerate(cases):
        name = f"pos{number}"
        kit.cloud.create_stream(name, 1)
        with kit.start(name, changes) as run:
            run.wait_for_action("initialize", kit.limits.start_s)
            line = (run.lines() or ["no child"])[0]
            yield judged(item_id, f'"sequenceNumber":"{wanted}"' in line, line)


def retrieval_modes(kit: DaemonKit) -> Iterator[Finding]:
    """Fan-out shows by a registered consumer, polling by the size of its batches."""
    no_keys: dict[str, str | None] = {"retrievalMode": None, "idleTimeBetweenReadsInMillis": None}
    for item_id, name, changes in (
        ("CFG-24", "fanoutdefault", no_keys),
        ("CFG-26", "fanoutchosen", no_keys | {"retrievalMode": "fanout", "maxRecords": "20000"}),
    ):
        kit.cloud.create_stream(name, 1)
        kit.cloud.put(name, [(b"x", "k")])
        with kit.start(name, changes) as run:
            arrived = run.wait_for_action("processRecords", kit.limits.start_s)
            consumers = kit.cloud.consumers(name)
            evidence = f"records arrived: {arrived}; {consumers} consumers registered"
            yield judged(item_id, consumers == 1 and arrived, evidence)
    name = "pollten"
    kit.cloud.create_stream(name, 1)
    kit.cloud.put(name, [(b"x", "k")] * 11)
    with kit.start(name, no_keys | {"maxRecords": "10"}) as run:
        run.wait_for_action("processRecords", kit.limits.start_s, 2)
        sizes = [line.count('"action":"record"') for line in run.lines() if '"records"' in line]
        consumers = kit.cloud.consumers(name)
        warned = not kit.is_java or "Some polling properties have been set" in run.output
        ok = sizes == [10, 1] and consumers == 0 and warned
        yield judged("CFG-25", ok, f"batches of {sizes}, {consumers} consumers")


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    accepted_properties,
    effective_values,
    invisible_properties,
    generated_worker_id,
    stream_arn,
    start_positions,
    retrieval_modes,
)
