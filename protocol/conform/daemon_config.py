"""Cases for the daemon kit: command line, properties grammar, keys and credentials."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from protocol.conform.daemon_run import properties_text, usual_properties
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

_MISSING: Final = "Unable to find property file in classpath, or file system: "
_MORE: Final = "For more information, visit: https://github.com/awslabs/amazon-kinesis-client"

#: Daemons of one case that run at the same time: Java takes a minute to start.
_AT_ONCE: Final = 4

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
        {"AwsCredentialsProvider": "DefaultCredentialsProvider"},
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
    ("CFG-38", {"shardPrioritization": "x"}, "", "shardPrioritization"),
    ("CFG-39", {"workerId": ""}, "", "workerId"),
    (
        "CRED-03",
        {"AWSCredentialsProvider": "DefaultAWSCredentialsProviderChain"},
        "No credential providers were specified.",
        "DefaultAWSCredentialsProviderChain",
    ),
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

#: item, changed properties, what the evidence adds. The daemon has to start all the same.
_STARTS: Final[tuple[tuple[str, dict[str, str | None], str], ...]] = (
    ("CFG-06", {"streamArn": "   "}, "a blank streamArn is ignored"),
    ("CFG-09", {"failoverTimeMillis": "100nf"}, "the effective value does not show"),
    ("CFG-11", {"failoverTimeMillis": "20000   "}, "the effective value does not show"),
    (
        "CFG-15",
        {"FailoverTimeMillis": "1", "fooBar": "1", "billingMode": "PROVISIONED"},
        "unknown keys have no effect",
    ),
    (
        "CFG-16",
        {"AWSCredentialsProvider": None, "awscredentialsprovider": "DefaultCredentialsProvider"},
        "the key is recognized in lower case",
    ),
    (
        "CFG-17",
        {"awscredentialsproviderdynamodb": "Nonsense"},
        "the lower-case DynamoDB key is ignored",
    ),
    ("CFG-29", {"idleTimeBetweenReadsInMillis": "50"}, "the effective value does not show"),
    ("CFG-39", {"workerId": None}, "without a workerId"),
    ("CRED-01", {}, "the default chain found the environment's credentials"),
    (
        "CRED-02",
        {"AWSCredentialsProvider": "ABCD, EnvironmentVariableCredentialsProvider"},
        "the unknown name was skipped",
    ),
)

#: item, property, value. The daemon has to start; what becomes of the value cannot be seen.
_INVISIBLE: Final = (
    ("CFG-12", "cleanupLeasesUponShardCompletion", "false"),
    ("CFG-13", "isGracefulLeaseHandoffEnabled", "false"),
    ("CFG-14", "gracefulLeaseHandoffTimeoutMillis", "junk"),
    ("CFG-31", "metricsEnabledDimensions", "ShardId, WorkerIdentifier"),
    ("CFG-32", "workerMetricsTags", "a=b, c = d ,e"),
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


def _valid(kit: DaemonKit, name: str, file_name: str = "app.properties") -> dict[str, str]:
    """A valid properties file for runs with arguments of their own."""
    folder = kit.folder_of(name)
    values = usual_properties(name, folder / "script.json", kit.cloud)
    script = f'{{"record": "{folder}", "actions": {{}}}}'
    return {file_name: properties_text(values), "script.json": script}


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
            evidence=f"exit {code}: {(run.output.strip().splitlines() or [''])[-1]}",
        )


def accepted_properties(kit: DaemonKit) -> Iterator[Finding]:
    """Properties files with oddities that a daemon starts with."""
    for start in range(0, len(_STARTS), _AT_ONCE):
        with ExitStack() as stack:
            runs = []
            for number, (item_id, changes, note) in enumerate(_STARTS[start : start + _AT_ONCE]):
                name = f"ok{start + number}"
                kit.cloud.create_stream(name, 1)
                runs.append((item_id, stack.enter_context(kit.start(name, changes)), note))
            for item_id, run, note in runs:
                yield kit.started(item_id, run, note)


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
    for start in range(0, len(cases), _AT_ONCE):
        with ExitStack() as stack:
            runs = []
            for number, (item_id, text) in enumerate(cases[start : start + _AT_ONCE]):
                name = f"prop{start + number}"
                kit.cloud.create_stream(name, 1)
                raw = text.replace(b"@", name.encode())
                run = stack.enter_context(kit.start(name, {"streamName": None}, raw=raw))
                runs.append((item_id, run, repr(text)[1:]))
            for item_id, run, note in runs:
                yield kit.started(item_id, run, note)
    with kit.start("propbad", raw=b"x=\\u12\n") as run:
        yield kit.refused("PROP-05", run, "Malformed \\uxxxx encoding.", "\\u")


def values_in_the_childs_arguments(kit: DaemonKit) -> Iterator[Finding]:
    """What becomes of backslashes and number signs, seen in the child's arguments."""
    name = "propargs"
    kit.cloud.create_stream(name, 1)
    folder = kit.folder_of(name)
    command = usual_properties(name, folder / "script.json", kit.cloud)["executableName"]
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
        run.wait_for(lambda found: found.actions() or found.output, kit.limits.step_s)
        seen = run.wait_for(
            lambda found: found.exit_code(0) is not None or f"{name}  " in found.output,
            kit.limits.refuse_s,
        )
        evidence = "the name appears with its blanks, or the daemon refused it"
        yield judged("PROP-02", seen and not run.actions(), evidence)


def stream_arn(kit: DaemonKit) -> Iterator[Finding]:
    """Java takes only the name from an ARN, even one of another region."""
    name = "cfgarn"
    kit.cloud.create_stream(name, 1)
    arn = f"arn:aws:kinesis:us-east-2:000000000000:stream/{name}"
    with kit.start(name, {"streamName": "str", "streamArn": arn}) as run:
        started = run.wait_for_action("initialize", kit.limits.start_s)
        code = run.exit_code(0)
        if started:
            yield passed("CFG-05", "read from the stream that the ARN names")
        elif not kit.is_java and code == 2:
            yield differs("CFG-05", "stream-arn", "exit 2: another region than regionName")
        else:
            yield failed("CFG-05", f"no child; exit {code}")


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
            yield kit.decided(
                item_id,
                as_java=consumers == 1,
                row="fan-out",
                otherwise=arrived,
                evidence=f"records arrived: {arrived}; {consumers} consumers registered",
            )
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
            finding = kit.started(item_id, run, f"only profile {wanted} exists")
            refused = not kit.is_java and run.exit_code(0) == 2
            if item_id == "CRED-04":
                evidence = (
                    "DynamoDB was called with the Kinesis provider: no other credentials exist"
                )
                yield judged("CRED-11", kit.cloud.lease_rows(name), evidence)
            if item_id == "CRED-05" and refused:
                finding = differs(item_id, "credentials-words", "exit 2: too many words")
            yield finding


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
    value = "StsAssumeRoleCredentialsProvider|arn:aws:iam::123456789012:role/r|s"
    value += "|foo=bar|externalId=eid=extra|hello"
    with kit.start("cred09", {"AWSCredentialsProvider": value}) as run:
        code = run.exit_code(kit.limits.refuse_s if kit.is_java else 4.0)
        accepted = code != 1 or "No credential providers were specified." not in run.output
        if kit.is_java:
            ok = accepted and "Unsupported nested key: foo=bar" in run.output
            yield judged("CRED-09", ok, f"exit {code}")
        else:
            yield judged("CRED-09", code != 2, f"exit {code}: ignored with a warning")


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    command_lines,
    help_flag,
    log_configuration,
    ways_to_name_the_file,
    refused_properties,
    no_region,
    late_failures,
    accepted_properties,
    invisible_properties,
    generated_worker_id,
    grammar,
    values_in_the_childs_arguments,
    application_name_keeps_blanks,
    stream_arn,
    start_positions,
    retrieval_modes,
    profile_credentials,
    assumed_roles,
    odd_assume_role_words,
)
