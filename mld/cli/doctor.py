"""``kcl-mld doctor``: whether a worker could do its work here, before it is started."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.aws.regions import find_region
from kcl_mld.cli.doctor_facts import AwsExamination, try_child
from kcl_mld.cli.loading import build
from kcl_mld.cli.machine import on_this_machine
from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.tables import print_json
from kcl_mld.config.findings import Severity
from kcl_mld.kernel.adapters.calls import CallPool
from kcl_mld.kernel.model.masking import mask, printable
from kcl_mld.ops.adapters.machine_limits import machine_limits
from kcl_mld.ops.rules.doctor import (
    AwsFacts,
    Check,
    CheckSeverity,
    judge_child,
    judge_clock,
    judge_endpoints,
    judge_identity,
    judge_limits,
    judge_permissions,
    judge_stream,
    judge_table,
    most_held,
)
from kcl_mld.ops.rules.iam_policy import PolicyScope, Role, least_policy
from kcl_mld.signals.adapters.output.logs import LogFormat, LogSettings, set_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kcl_mld.config.build import Built
    from kcl_mld.config.config import Config
    from kcl_mld.ops.rules.doctor import ChildTrial

_COLORS = {CheckSeverity.ERROR: "red", CheckSeverity.WARNING: "yellow"}
_OF_FINDINGS = {Severity.ERROR: CheckSeverity.ERROR, Severity.WARNING: CheckSeverity.WARNING}


@click.command("doctor")
@takes_properties_file()
@click.option(
    "--try-child",
    "tries_child",
    is_flag=True,
    help="Start the program, send it initialize and leaseLost and no records.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def doctor(file: str, *, tries_child: bool, output: str) -> int:
    """Check whether a worker of the properties FILE could do its work on this machine.

    Credentials, region, clock, streams, table, permissions, endpoints, limits. Changes nothing: it
    tries what reads, one record of each stream included, and lists the other permissions as not
    tried. Run it where the worker runs. Exit code 1: there is an error.
    """
    built = build(file, worker_id="doctor")
    config = built.require()
    set_up(LogSettings(format=LogFormat.TEXT, level="INFO" if tries_child else "ERROR"))
    checks = asyncio.run(_checks(built, config, file, tries_child=tries_child))
    if output == "json":
        print_json(_as_json(file, checks))
    else:
        _print(file, checks)
    return int(any(one.severity is CheckSeverity.ERROR for one in checks))


async def _checks(built: Built, config: Config, file: str, *, tries_child: bool) -> list[Check]:
    checks = list(_of_file(on_this_machine(built, file)))
    aws_checks, facts = await _of_aws(config)
    trial = await try_child(config) if tries_child else None
    if trial is not None:
        checks.append(judge_child(trial))
    return [*checks, *aws_checks, *_of_machine(config, facts, trial)]


def _of_file(built: Built) -> Iterator[Check]:
    """The findings of ``validate`` on this machine."""
    found = [one for one in built.findings if one.severity in _OF_FINDINGS]
    if not found:
        yield Check("file", CheckSeverity.OK, "no errors or warnings")
    for one in found:
        subject = f"file {one.place.rpartition('/')[2]}"
        text = f"{one.key}: {one.text}" if one.key else one.text
        yield Check(subject, _OF_FINDINGS[one.severity], text, one.suggestion)


async def _of_aws(config: Config) -> tuple[list[Check], AwsFacts]:
    configured = config.aws.kinesis_region or config.stream.region
    region, origin = find_region(configured)
    text = f"{region}, from {origin}"
    for name, other in (
        ("DynamoDB", config.aws.dynamodb_region),
        ("CloudWatch", config.aws.cloudwatch_region),
    ):
        text += "" if other in (None, region) else f"; {name} in {other}"
    checks = [Check("region", CheckSeverity.OK, text)]
    with closing(CallPool("doctor", 8)) as pool:
        examination = AwsExamination(config, region, pool)
        identities = await examination.identities()
        checks += map(judge_identity, identities)
        if any(one.provider is None for one in identities):
            facts = AwsFacts()
            checks.append(Check("AWS", CheckSeverity.WARNING, "nothing was asked"))
        else:
            checks += judge_endpoints(examination.endpoints())
            facts = await examination.ask()
            checks += _of_facts(config, facts, region)
    return checks, facts


def _of_facts(config: Config, facts: AwsFacts, region: str) -> Iterator[Check]:
    yield judge_clock(facts.ahead_s)
    for stream in facts.streams:
        yield from judge_stream(stream, config.traits)
    if facts.table is not None:
        yield from judge_table(facts.table)
    statements = least_policy(config, Role.WORKER, PolicyScope(region=region))
    needed = [action for one in statements for action in one.actions]
    if any((one.summary or {}).get("EncryptionType") == "KMS" for one in facts.streams):
        needed.append("kms:Decrypt")
    yield from judge_permissions(facts.attempts, needed)


def _of_machine(config: Config, facts: AwsFacts, trial: ChildTrial | None) -> Iterator[Check]:
    streams = [
        (int((one.summary or {}).get("OpenShardCount", 0)), config.children_of(one.name))
        for one in facts.streams
    ]
    if not any(shards for shards, _ in streams):
        streams = [(1, config.child.per_shard)]
    most = most_held(streams, config.leases.max_leases_for_worker)
    child_bytes = None if trial is None else trial.resident_bytes
    yield from judge_limits(machine_limits(), most, child_bytes)


def _print(file: str, checks: Sequence[Check]) -> None:
    counts = [
        f"{number} {severity.word}{'s' * (number != 1)}"
        for severity in (CheckSeverity.ERROR, CheckSeverity.WARNING)
        if (number := sum(one.severity is severity for one in checks))
    ]
    click.echo(f"{file}: {', '.join(counts) or 'all is well'}")
    for one in checks:
        word = click.style(f"{one.severity.word:<7}", fg=_COLORS.get(one.severity))
        click.echo(f"  {word}  {_shown(one.subject)}: {_shown(one.text)}")
        if one.todo:
            click.echo(f"           Do: {_shown(one.todo)}.")


def _shown(text: str) -> str:
    return printable(mask(text))


def _as_json(file: str, checks: Sequence[Check]) -> dict[str, Any]:
    return {
        "file": file,
        "severity": max((one.severity for one in checks), default=CheckSeverity.OK).word,
        "checks": [
            {
                "subject": one.subject,
                "severity": one.severity.word,
                "text": mask(one.text),
                "do": one.todo,
            }
            for one in checks
        ],
    }
