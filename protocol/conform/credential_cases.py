"""Cases for the daemon kit: credentials that work.

Names that nobody builds are in ``refusal_cases``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from protocol.conform.report import Finding, Verdict, judged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from protocol.conform.daemon import DaemonKit


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
            told = "Unsupported nested key: foo=bar" in run.output
            finding = judged("CRED-09", told, f"{finding.evidence}; the word is in its log: {told}")
        yield finding


CASES: Final[tuple[Callable[[DaemonKit], Iterator[Finding]], ...]] = (
    names_of_the_sdk_1,
    profile_credentials,
    assumed_roles,
    odd_assume_role_words,
)
