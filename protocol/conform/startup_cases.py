"""Cases for the daemon kit: the command line, properties files and credentials."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

from kcl_mld_protocol.conform.daemon import properties_text
from kcl_mld_protocol.conform.report import (
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

    from kcl_mld_protocol.conform.daemon import DaemonKit
    from kcl_mld_protocol.conform.report import Finding


_MISSING: Final = "Unable to find property file in classpath, or file system: "
_MORE: Final = "For more information, visit: https://github.com/awslabs/amazon-kinesis-client"

#: item, arguments, Java's text, what kcl-mld's output must mention.
_COMMAND_LINES: Final = (
    ("CLI-01", (), "Properties file missing, please provide a properties file", "properties"),
    (
        "CLI-02",
        ("a", "b"),
        "Expected a single argument, but found multiple arguments.  Arguments: a, b",
        "b",
    ),
    ("CLI-05", ("-p",), "Expected a value after parameter -p", "-p"),
    ("CLI-06", ("-p", "a", "-p", "b"), "Can only specify option -p once.", "-p"),
    ("CLI-08", ("-p=x.properties",), f"{_MISSING}'-p=x.properties'", "x.properties"),
    ("CLI-09", ("nofile.properties",), f"{_MISSING}'nofile.properties'", "nofile.properties"),
)


def command_lines(kit: DaemonKit) -> Iterator[Finding]:
    """Arguments that are refused."""
    for number, (item_id, arguments, text, hint) in enumerate(_COMMAND_LINES):
        with kit.start_with(f"cli{number}", *arguments, files={}) as run:
            yield kit.refused(item_id, run, text, hint)
            if item_id == "CLI-09":
                last = (run.stderr.strip().splitlines() or [""])[-1]
                yield kit.decided(
                    "CLI-11",
                    as_java=last == _MORE,
                    row="error-output",
                    otherwise=last.strip(),
                    evidence=f"last line on stderr: {last}",
                )


def help_flag(kit: DaemonKit) -> Iterator[Finding]:
    """Java takes ``--help`` for a file."""
    with kit.start_with("clihelp", "--help", files={}) as run:
        code = run.exit_code(kit.limits.refuse_s)
        yield kit.decided(
            "CLI-07",
            as_java=code == 1 and f"{_MISSING}'--help'" in run.stderr,
            row="help",
            otherwise=code == 0 and "Usage" in run.stdout,
            evidence=f"exit {code}: {(run.output.strip().splitlines() or [''])[0]}",
        )


def log_configuration(kit: DaemonKit) -> Iterator[Finding]:
    """A log configuration that is not there."""
    name = "clilog"
    with kit.start_with(name, "-l", "nolog.xml", "app.properties", files=_valid(kit, name)) as run:
        text = "Error while loading log configuration: nolog.xml (No such file or directory)"
        yield kit.refused("CLI-10", run, text, "nolog.xml")


def _valid(kit: DaemonKit, name: str) -> dict[str, str]:
    """A valid properties file for runs with arguments of their own."""
    folder = kit.folder_of(name)
    values = kit.usual_properties(name, folder / "script.json")
    script = f'{{"record": "{folder}", "actions": {{}}}}'
    return {"app.properties": properties_text(values), "script.json": script}


def ways_to_name_the_file(kit: DaemonKit) -> Iterator[Finding]:
    """The flag, the flag over the positional argument, and the double dash."""
    for item_id, name, arguments in (
        ("CLI-03", "clip", ("-p", "app.properties")),
        ("CLI-04", "cliboth", ("-p", "app.properties", "other.properties")),
        ("CLI-12", "clidash", ("--", "app.properties")),
    ):
        kit.cloud.create_stream(name, 1)
        files = _valid(kit, name) | {"other.properties": "executableName = /nonexistent\n"}
        with kit.start_with(name, *arguments, files=files) as run:
            yield kit.started(item_id, run, f"with {' '.join(arguments)}")


CLI_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    command_lines,
    help_flag,
    log_configuration,
    ways_to_name_the_file,
)


#: item, changed properties, Java's text, what kcl-mld's output must mention.
_REFUSED: Final[tuple[tuple[str, dict[str, str | None], str, str], ...]] = (
    ("CFG-01", {"executableName": None}, "Must provide an executable name", "executableName"),
    ("CFG-02", {"applicationName": None}, "Application name is required", "applicationName"),
    ("CFG-02", {"applicationName": ""}, "Application name is required", "applicationName"),
    ("CFG-03", {"streamName": None}, "Stream name or Stream Arn is required.", "streamName"),
    (
        "CFG-04",
        {"AWSCredentialsProvider": None},
        "A basic set of AWS credentials must be provided",
        "AwsCredentialsProvider",
    ),
    ("CFG-07", {"streamArn": "foo"}, "Malformed ARN - doesn't start with 'arn:'", "streamArn"),
    ("CFG-08", {"streamArn": "arn:aws:kinesis:us-east-1:1:stream/a"}, "Invalid streamArn", "arn"),
    (
        "CFG-08",
        {"streamArn": "arn:aws:firehose:us-east-1:123456789012:stream/a"},
        "Invalid streamArn",
        "arn",
    ),
    (
        "CFG-08",
        {"streamArn": "arn:aws:kinesis:us-east-1:123456789012:streams/a"},
        "Invalid streamArn",
        "arn",
    ),
    (
        "CFG-18",
        {"AwsCredentialsProvider": "EnvironmentVariableCredentialsProvider"},
        "InvocationTargetException",
        "CredentialsProvider",
    ),
    ("CFG-20", {"initialPositionInStream": "AT_TIMESTAMP"}, "AT_TIMESTAMP", "AT_TIMESTAMP"),
    ("CFG-22", {"initialPositionInStreamExtended": "null"}, 'For input string: "null"', "null"),
    (
        "CFG-27",
        {"maxRecords": "20000"},
        "maxRecords must be less than or equal to 10000 but current value is 10000",
        "maxRecords",
    ),
    ("CFG-28", {"retrievalMode": "foo"}, "Unknown retrieval type 'foo'.", "retrievalMode"),
    (
        "CFG-30",
        {"metricsLevel": "bogus"},
        "No enum constant software.amazon.kinesis.metrics.MetricsLevel.BOGUS",
        "metricsLevel",
    ),
    (
        "CFG-33",
        {"staleWorkerMetricsEntryCleanupDuration": "-PT12H"},
        "Negative values are not permitted for duration: -PT12H",
        "staleWorkerMetricsEntryCleanupDuration",
    ),
    (
        "CFG-34",
        {"leaseTableScanTotalSegments": "-1"},
        "leaseTableScanTotalSegments must be a positive number",
        "leaseTableScanTotalSegments",
    ),
    (
        "CFG-36",
        {"kinesisEndpoint": "kinesis.us-east-1.amazonaws.com"},
        "The URI scheme of endpointOverride must not be null.",
        "kinesisEndpoint",
    ),
    ("CFG-37", {"maxActiveThreads": "abc"}, 'For input string: "abc"', "maxActiveThreads"),
    ("CFG-37", {"maxActiveThreads": ""}, 'For input string: ""', "maxActiveThreads"),
    ("CFG-38", {"shardPrioritization": "x"}, "ShardPrioritization", "shardPrioritization"),
    ("CFG-39", {"workerId": ""}, "WorkerID is required", "workerId"),
    (
        "CRED-08",
        {
            "AWSCredentialsProvider": "StsAssumeRoleCredentialsProvider"
            "|arn:aws:iam::123456789012:role/r|s|endpointRegion=snuffleupagus"
        },
        "No credential providers were specified.",
        "snuffleupagus",
    ),
    (
        "CRED-10",
        {"AWSCredentialsProvider": "StsAssumeRoleCredentialsProvider | arn | s"},
        "No credential providers were specified.",
        "StsAssumeRoleCredentialsProvider",
    ),
)


def refused_properties(kit: DaemonKit) -> Iterator[Finding]:
    """Properties files that no daemon may start with."""
    for number, (item_id, changes, text, hint) in enumerate(_REFUSED):
        with kit.start(f"cfg{number}", changes) as run:
            yield kit.refused(item_id, run, text, hint)


def no_region(kit: DaemonKit) -> Iterator[Finding]:
    """Nothing names a region."""
    without = ("AWS_REGION", "AWS_DEFAULT_REGION")
    with kit.start("cfgregion", {"regionName": None}, without=without) as run:
        yield kit.refused(
            "CFG-35", run, "Unable to load region from any of the providers", "region"
        )


def late_failures(kit: DaemonKit) -> Iterator[Finding]:
    """A failover time that lets every attempt to initialize fail."""
    kit.cloud.create_stream("cfglate", 1)
    with kit.start("cfglate", {"failoverTimeMillis": "-12"}) as run:
        code = run.exit_code(kit.limits.start_s)
        yield kit.decided(
            "CFG-10",
            as_java=code == 0 and "Unable to initialize after 20 attempts" in run.output,
            row="late-errors",
            otherwise=code == 2 and "failoverTimeMillis" in run.output,
            evidence=f"exit {code}: {run.last_line()}",
        )


REFUSAL_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    refused_properties,
    no_region,
    late_failures,
)


def grammar(kit: DaemonKit) -> Iterator[Finding]:
    """The syntax of properties files, seen in the names that the daemon uses."""
    cases: tuple[tuple[str, bytes], ...] = (
        ("PROP-01", b"streamName:@\n"),
        ("PROP-01", b"streamName @\n"),
        ("PROP-03", b"streamName = \\\n    @\n"),
        ("PROP-05", b"streamName = @\nx=\\u00e9\n"),
        ("PROP-06", b"streamName = @\nx=\xc3\xa9\n"),
        ("PROP-07", b"streamName = wrong\nstreamName = @\n"),
        ("PROP-08", b"# comment \\\nstreamName = @\n"),
        ("PROP-10", b"streamName = @\rfooBar = 1\r"),
    )
    for number, (item_id, text) in enumerate(cases):
        name = f"prop{number}"
        kit.cloud.create_stream(name, 1)
        raw = text.replace(b"@", name.encode())
        with kit.start(name, {"streamName": None}, raw=raw) as run:
            yield kit.started(item_id, run, repr(text)[1:])
    with kit.start("propbad", raw=b"x=\\u12\n") as run:
        yield kit.refused("PROP-05", run, "Malformed \\uxxxx encoding.", "\\u")


def values_in_the_childs_arguments(kit: DaemonKit) -> Iterator[Finding]:
    """What becomes of backslashes and number signs, seen in the child's arguments."""
    name = "propargs"
    kit.cloud.create_stream(name, 1)
    folder = kit.folder_of(name)
    command = kit.usual_properties(name, folder / "script.json")["executableName"]
    raw = f"executableName = {command} C:\\tools\\x  # no --comment \n".encode()
    with kit.start(name, {"executableName": None}, raw=raw) as run:
        started = run.wait_for(lambda found: found.children(), kit.limits.start_s)
        if not started:
            yield failed("PROP-04", "no child")
            return
        argv = run.children()[0][0].what["argv"][2:]
        evidence = f"arguments {argv}"
        yield judged("PROP-04", argv[:1] == ["C:\toolsx"], evidence)
        yield judged("PROP-09", argv[1:4] == ["#", "no", "--comment"], evidence)
        yield judged("LIFE-01", argv[-1] == "--comment", evidence)
        yield judged("LIFE-13", run.children()[0][0].what["cwd"] == str(run.folder), "cwd kept")


def application_name_keeps_blanks(kit: DaemonKit) -> Iterator[Finding]:
    """Trailing blanks belong to the value; a table of that name cannot be made."""
    name = "propblank"
    kit.cloud.create_stream(name, 1)
    with kit.start(name, {"applicationName": f"{name}  "}) as run:
        seen = run.wait_for(lambda found: f"{name}  " in found.output, kit.limits.start_s)
        run.exit_code(kit.limits.refuse_s)
        evidence = "the name appears with its blanks" if seen else "the name does not appear"
        yield judged("PROP-02", seen and not run.actions(), evidence)


SYNTAX_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    grammar,
    values_in_the_childs_arguments,
    application_name_keeps_blanks,
)


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

#: item, property, value in the file, effective value, text of Java's log.
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
                verb = "says" if logged in run.output else "does not say"
                yield judged(item_id, logged in run.output, f"its log {verb}: {logged}")


def _validated(kit: DaemonKit, name: str, key: str, wanted: str) -> tuple[bool, str]:
    """Whether ``validate`` shows this value for the file of a run, and its output."""
    path = str(kit.folder_of(name) / "app.properties")
    with kit.start_with(f"{name}-validate", "validate", "--json", path, files={}) as run:
        run.exit_code(kit.limits.refuse_s)
        try:
            shown = json.loads(run.stdout)["settings"][key]["value"]
        except (ValueError, KeyError, TypeError):
            return False, f"validate said {run.output.strip()!r:.60}"
    return shown == wanted, f"validate: {key} is {shown}"


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
    """The first line of a child has the position."""
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


CONFIG_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    accepted_properties,
    effective_values,
    invisible_properties,
    generated_worker_id,
    stream_arn,
    start_positions,
    retrieval_modes,
)


def names_of_the_sdk_1(kit: DaemonKit) -> Iterator[Finding]:
    """A file of a fleet of KCL 2.0 to 2.6: refused by later Java daemons, served by kcl-mld."""
    name = "cred03"
    kit.cloud.create_stream(name, 1)
    old = "DefaultAWSCredentialsProviderChain"
    with kit.start(name, {"AWSCredentialsProvider": old}) as run:
        if kit.is_java:
            yield kit.refused("CRED-03", run, "No credential providers were specified.")
            return
        yield kit.decided(
            "CRED-03",
            as_java=False,
            row="sdk1-names",
            otherwise=run.wait_for_action("initialize", kit.limits.start_s)
            and f"{old} is a name of the AWS SDK 1" in run.output,
            evidence="a child was initialized, and a warning names the name to write",
        )


def profile_credentials(kit: DaemonKit) -> Iterator[Finding]:
    """A named profile; with a third word Java falls back to the default profile."""
    for item_id, value in (
        ("CRED-04", "ProfileCredentialsProvider|dev"),
        ("CRED-05", "ProfileCredentialsProvider|dev|x"),
    ):
        name = item_id.lower()
        kit.cloud.create_stream(name, 1)
        credentials = kit.folder_of(name).with_name(f"{name}.credentials")
        wanted = "dev" if item_id == "CRED-04" else "default"
        credentials.write_text(
            f"[{wanted}]\naws_access_key_id = embedded\naws_secret_access_key = embedded\n"
        )
        keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        extra = {"AWS_SHARED_CREDENTIALS_FILE": str(credentials)}
        with kit.start(name, {"AWSCredentialsProvider": value}, without=keys, extra=extra) as run:
            yield kit.started(item_id, run, f"only profile {wanted} exists")
            if item_id == "CRED-04":
                evidence = (
                    "DynamoDB was called with the Kinesis provider: no other credentials exist"
                )
                yield judged("CRED-11", kit.cloud.lease_rows(name), evidence)


def assumed_roles(kit: DaemonKit) -> Iterator[Finding]:
    """The assume-role provider against the STS of the embedded AWS."""
    role = "StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/reader|session"
    for item_id, name, words in (
        ("CRED-06", "roleregion", "|endpointRegion=us-east-1|externalId=external"),
        ("CRED-07", "roleendpoint", f"|endpoint={kit.cloud.dynamodb_url}^us-east-1"),
    ):
        kit.cloud.create_stream(name, 1)
        with kit.start(name, {"AWSCredentialsProvider": role + words}) as run:
            yield kit.started(item_id, run, "with the assumed role")


def odd_assume_role_words(kit: DaemonKit) -> Iterator[Finding]:
    """Words that Java ignores with a log line; the provider itself is built."""
    value = "StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/reader|session"
    value += "|foo=bar|externalId=eid=extra|hello"
    name = "cred09"
    kit.cloud.create_stream(name, 1)
    with kit.start(name, {"AWSCredentialsProvider": value}) as run:
        finding = kit.started("CRED-09", run, "with the assumed role")
        if kit.is_java and finding.verdict is Verdict.PASS:
            is_logged = "Unsupported nested key: foo=bar" in run.output
            finding = judged(
                "CRED-09", is_logged, f"{finding.evidence}; the word is in its log: {is_logged}"
            )
        yield finding


CREDENTIAL_CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    names_of_the_sdk_1,
    profile_credentials,
    assumed_roles,
    odd_assume_role_words,
)
