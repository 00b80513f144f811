"""``kcl-mld acceptance``: the proof on an AWS account of the user's own, and its clean-up."""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcl_mld.acceptance.account import Account
from kcl_mld.acceptance.budget import Budget
from kcl_mld.acceptance.clean_up import CleanUp
from kcl_mld.acceptance.clients import Clients, Pace
from kcl_mld.acceptance.journal import is_open, read_journal
from kcl_mld.acceptance.options import AWS, PREFIX, Names, Options, Stage, new_run_id
from kcl_mld.acceptance.permissions import denied_actions, not_tried
from kcl_mld.acceptance.proof import run_proof
from kcl_mld.acceptance.recording import RunRecording
from kcl_mld.acceptance.report import write_report
from kcl_mld.acceptance.resources import Resources
from kcl_mld.acceptance.rules.judge import judge
from kcl_mld.acceptance.rules.plan import costs, plan_lines, services, usd_at_most, usd_per_hour
from kcl_mld.acceptance.run import clean_up_command, delete_and_tell, prove_and_clean_up
from kcl_mld.acceptance.spark_stage import missing_packages
from kcl_mld.aws.regions import resolve_region
from kcl_mld.cli.arguments import Finite
from kcl_mld.cli.iam import parse_account, parse_prefix
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import mask
from kcl_mld.kernel.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.acceptance.run import RunOutcome

_MINUTES, _MAX_USD, _INTERVAL_S = 30.0, 1.5, 1.0
_MINUTE_S, _HOUR_S = 60.0, 3600.0
#: Shorter runs see no iterator and no subscription of nine hours expire.
_ROLLOVERS_FROM_S = 3600.0
#: Stages that go on with the workers of other ones, any of these.
_NEEDED = {
    Stage.RESHARDING: (Stage.POLLING,),
    Stage.KILL: (Stage.POLLING,),
    Stage.HAND_OFF: (Stage.POLLING,),
    Stage.METRICS: (Stage.POLLING, Stage.FAN_OUT),
    Stage.ROLLOVERS: (Stage.POLLING, Stage.FAN_OUT),
}
#: In the directory of the run: what was said, with times, for one whose terminal is gone.
_LOG = "run.log"
_FAILED_EXIT = 1
#: Something that costs money may be left.
LEFT_EXIT = 8


def _say(text: str, log: Path | None = None) -> None:
    """Tell people, and write it down; secrets are hidden.

    A terminal that is gone, or a full disk, ends nothing: the clean-up goes on.
    """
    line = mask(text)
    with contextlib.suppress(OSError):
        click.echo(line, err=True)
    if log is not None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        with contextlib.suppress(OSError), log.open("a", encoding="utf-8") as file:
            file.write(f"{now} {line}\n")


def _print(paths: Iterable[Path]) -> None:
    """On stdout. One that is gone does not change the exit code."""
    try:
        for path in paths:
            click.echo(path)
    except OSError:
        # What is still in the buffer would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@click.command("acceptance")
@click.option("--region", help="Default: that of the environment or the profile.")
@click.option(
    "--account",
    callback=parse_account,
    metavar="ID",
    help="The account that you mean; another one is refused.",
)
@click.option("--yes", is_flag=True, help="Ask nothing; needs --account.")
@click.option(
    "--prefix",
    default=PREFIX,
    show_default=True,
    callback=parse_prefix,
    help="Begins the names of all that is created.",
)
@click.option(
    "--minutes",
    type=Finite(1, 24 * 60),
    help=f"The proof ends then at the latest; default: {_MINUTES:.0f}.",
)
@click.option("--hours", type=Finite(0.1, 24), help="The same; 9 to see hours of normal work.")
@click.option(
    "--max-cost",
    "max_usd",
    type=Finite(0, 1000),
    default=_MAX_USD,
    show_default=True,
    metavar="USD",
    help="The proof ends when its estimated costs reach this.",
)
@click.option(
    "--stage",
    "stages",
    multiple=True,
    type=click.Choice([str(stage) for stage in Stage]),
    help="Only this; repeatable. Default: all that can be run.",
)
@click.option("--bucket", help="Your S3 bucket, for PySpark children.")
@click.option(
    "--java", type=click.Path(exists=True, dir_okay=False), help="Program java, for a Java worker."
)
@click.option(
    "--jars",
    type=click.Path(exists=True, file_okay=False),
    help="Folder of the jars of its MultiLangDaemon.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path),
    help="New folder for the journal, logs and reports; default: the name of the run.",
)
@click.option(
    "--clean-up",
    "journal",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="JOURNAL",
    help="Only delete what an earlier run has left.",
)
@click.option(
    "--control-interval", "interval_s", type=Finite(0, 60), default=_INTERVAL_S, hidden=True
)
def acceptance(
    *,
    region: str | None,
    account: str | None,
    yes: bool,
    prefix: str,
    minutes: float | None,
    hours: float | None,
    max_usd: float,
    stages: tuple[str, ...],
    bucket: str | None,
    java: str | None,
    jars: str | None,
    directory: Path | None,
    journal: Path | None,
    interval_s: float,
) -> int:
    """Prove on your AWS account that workers do there what they do here.

    Creates a stream, tables and a consumer, runs workers through splits, crashes and hand-offs,
    counts the records, and deletes all of it. First it shows the account, what it creates and what
    that costs, and asks. Exit codes: 0 all stages that were run have passed; 1 one has failed, or
    the run ended early; 8 something is left in the account.
    """
    if yes and account is None:
        raise click.UsageError("--yes needs --account, the account that you mean")
    if not yes and not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask at: write --account ID --yes")
    if journal is not None:
        return _clean_up(journal, account, interval_s, asks=not yes)
    if minutes is not None and hours is not None:
        raise click.UsageError("either --minutes or --hours")
    if (java is None) != (jars is None):
        raise click.UsageError("--java and --jars go together")
    limit_s = hours * _HOUR_S if hours is not None else (minutes or _MINUTES) * _MINUTE_S
    wanted = _possible(stages, limit_s, bucket, java)
    clients, endpoints = _clients(resolve_region(region), interval_s, services(wanted))
    caller_account, arn = _caller(clients, account)
    names = Names(prefix=prefix, run_id=new_run_id())
    options = Options(
        region=clients.region,
        account=caller_account,
        names=names,
        limit_s=limit_s,
        limit_usd=max_usd,
        stages=wanted,
        bucket=bucket,
        java=java,
        jars=jars,
        directory=(directory or Path(names.run)).absolute(),
        endpoints=endpoints,
        interval_s=interval_s,
    )
    return _prove(options, clients, arn, asks=not yes)


def _clients(
    region: str, interval_s: float, called: Iterable[str]
) -> tuple[Clients, dict[str, str]]:
    """Clients, and where the services that are called are.

    Raises:
        ConfigError: some are AWS's, others are not.
        UsageError: AWS is not called at such a pace.
    """
    clients = Clients(region, Pace(interval_s))
    endpoints = clients.endpoints(called)
    others = [f"{name} is at {place}" for name, place in endpoints.items() if place != AWS]
    if others and AWS in endpoints.values():
        real = [name for name, place in endpoints.items() if place == AWS]
        why = f"{', '.join(others)}, but AWS has {', '.join(real)}"
        raise ConfigError(f"{why}: set endpoints (AWS_ENDPOINT_URL) for all services or for none")
    if interval_s < _INTERVAL_S and not others:
        raise click.UsageError(f"--control-interval below {_INTERVAL_S:g} is for local servers")
    return clients, endpoints


def _caller(clients: Clients, wanted: str | None) -> tuple[str, str]:
    """Account and ARN of the caller.

    Raises:
        ConfigError: the account is not the one that is meant.
    """
    identity = clients.call("sts", "get_caller_identity")
    account, arn = str(identity["Account"]), str(identity["Arn"])
    if wanted is not None and account != wanted:
        why = f"the credentials are those of account {account}, not {wanted}: nothing was done"
        raise ConfigError(why)
    return account, arn


def _possible(
    asked: tuple[str, ...], limit_s: float, bucket: str | None, java: str | None
) -> frozenset[Stage]:
    """The stages to run: those that were asked for, else all that can be run.

    Raises:
        ConfigError: one was asked for by its name and lacks what it needs.
    """
    if bucket is not None and (missing := missing_packages()):
        why = f"--bucket needs the packages {', '.join(missing)}"
        raise ConfigError(f"{why}: pip install 'kcl-mld[iceberg]'")
    lacking = {
        Stage.JAVA: "" if java else "--java and --jars",
        Stage.SPARK: "" if bucket else "--bucket",
        Stage.ROLLOVERS: "" if limit_s >= _ROLLOVERS_FROM_S else "--hours 1 or more",
    }
    for stage in map(Stage, asked):
        if lacking.get(stage):
            raise ConfigError(f"--stage {stage} needs {lacking[stage]}")
        needed = _NEEDED.get(stage, ())
        if needed and not any(one in asked for one in needed):
            also = " or ".join(f"--stage {one}" for one in needed)
            raise ConfigError(f"--stage {stage} needs {also}")
    possible = frozenset(stage for stage in Stage if not lacking.get(stage))
    return frozenset(map(Stage, asked)) or possible


def _prove(options: Options, clients: Clients, arn: str, *, asks: bool) -> int:
    account = Account(clients, options.account)
    hourly = usd_per_hour(costs(options.names, options.stages))
    for line in plan_lines(options, arn):
        _say(line)
    if usd_at_most(options) > options.limit_usd:
        raise ConfigError(f"that is more than --max-cost {options.limit_usd:.2f}")
    _ask(f"Create these in account {options.account}?", asks=asks)
    _check(options, clients, account)
    budget = Budget(options.limit_s, options.limit_usd, hourly)
    say = partial(_say, log=options.directory / _LOG)
    resources = Resources(options, clients, account, budget, say)
    resources.refuse_what_exists()
    resources.refuse_without_quota()
    try:
        options.directory.mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(f"{options.directory}: {error.strerror}") from None
    say(f"If this is killed, delete what it created: {clean_up_command(options.journal)}")
    recording = RunRecording(options.directory / "recording.jsonl")
    recording.append(
        "run", region=options.region, is_local=options.is_local, limit_s=options.limit_s
    )
    prove = partial(run_proof, options, resources, budget, recording, say)
    outcome = prove_and_clean_up(options, account, resources, budget, prove, say)
    return _report(options, budget, recording, outcome)


def _check(options: Options, clients: Clients, account: Account) -> None:
    """Find out what the caller may not do.

    Raises:
        ConfigError: says what is missing; nothing was created.
    """
    _say(f"Trying permissions; only the run itself can try {', '.join(not_tried(options))}")
    denied = denied_actions(clients, account, options)
    if denied:
        why = "kcl-mld iam --role acceptance prints what to allow; nothing was created"
        raise ConfigError(f"missing permissions: {', '.join(denied)}; {why}")


def _ask(question: str, *, asks: bool) -> None:
    """Go on only with a yes.

    Raises:
        click.Abort: no.
    """
    if asks:
        click.confirm(question, abort=True, err=True)


def _report(options: Options, budget: Budget, recording: RunRecording, outcome: RunOutcome) -> int:
    """Judge, write the reports, and say what is left; the exit code."""
    for one in outcome.left:
        recording.append("leftover", kind=one.resource.kind, name=one.resource.name)
    recording.append("cost", estimated_usd=round(budget.spent_usd, 4))
    if outcome.failure is not None:
        recording.append("failure", text=mask(str(outcome.failure)))
    recording.append("cleaned", count=outcome.deleted)
    report = judge(recording.lines())
    _print(write_report(report, options, options.directory))
    if outcome.left:
        return LEFT_EXIT
    return 0 if report.passed and outcome.failure is None else _FAILED_EXIT


def _clean_up(journal: Path, wanted: str | None, interval_s: float, *, asks: bool) -> int:
    """Delete what an earlier run has left; the exit code."""
    run, entries = read_journal(journal)
    if is_open(journal):
        why = "stop it first, by Ctrl-C; workers of one that was killed stop within a minute"
        raise ConfigError(f"{journal}: that run is still going on: {why}")
    if wanted is not None and wanted != run.account:
        raise ConfigError(f"{journal}: that run was in account {run.account}, not {wanted}")
    clients, endpoints = _clients(run.region, interval_s, run.endpoints)
    for service, place in run.endpoints.items():
        if endpoints[service] != place:
            why = f"that run called {service} at {place}, not {endpoints[service]}"
            raise ConfigError(f"{journal}: {why}: set its endpoint (AWS_ENDPOINT_URL) as it was")
    caller_account, arn = _caller(clients, run.account)
    account = Account(clients, caller_account)
    say = partial(_say, log=journal.parent / _LOG)
    clean_up = CleanUp(account, entries, run.names.run_id, run.limit_s, say)
    found = clean_up.look()
    say(f"Account {run.account}, region {run.region}, as {arn}")
    say(f"{len(found)} of the {counted(len(entries), 'name', 'names')} in the journal exist")
    for one in found:
        say(f"  {one.resource}" + (f": stays, {one.why_kept}" if one.why_kept else ""))
    if any(one.why_kept is None for one in found):
        _ask("Delete these?", asks=asks)
    return LEFT_EXIT if delete_and_tell(clean_up, journal, say) else 0
