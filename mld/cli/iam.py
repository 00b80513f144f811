"""``kcl-mld iam``: the IAM policy that a worker, a viewer or an operator of an application needs."""

from __future__ import annotations

import json
import re

import click

from kcl_mld.acceptance.options import PREFIX, PREFIX_FORM
from kcl_mld.acceptance.rules.policy import acceptance_policy
from kcl_mld.aws.regions import resolve_region
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import choose_properties_file, takes_properties_file
from kcl_mld.cli.tables import print_json
from kcl_mld.ops.rules.iam_policy import PolicyScope, Role, least_policy, policy_document

_ACCOUNT = re.compile(r"[0-9]{12}")
_ACCEPTANCE = "acceptance"
_KEY = re.compile(r"arn:aws[^:]*:kms:[-a-z0-9]+:[0-9]{12}:key/[-a-zA-Z0-9]+")
#: Characters without blanks. Source: "IAM and AWS STS quotas", managed policies.
_LONGEST = 6144


def parse_account(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """The id of an account.

    Raises:
        click.BadParameter: another form.
    """
    if text is not None and not _ACCOUNT.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not an account id of 12 digits")
    return text


def parse_prefix(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    """The prefix of the names of an acceptance run.

    Raises:
        click.BadParameter: another form.
    """
    if text is not None and not PREFIX_FORM.fullmatch(text):
        raise click.BadParameter(f"{text!r} is not 3 to 40 of a-z, 0-9 and -, a letter first")
    return text


def _keys(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    for text in texts:
        if not _KEY.fullmatch(text):
            raise click.BadParameter(f"{text!r} is not the ARN of a KMS key")
    return texts


@click.command("iam")
@takes_properties_file(is_required=False)
@click.option(
    "--role",
    type=click.Choice([*map(str, Role), _ACCEPTANCE]),
    required=True,
    help="worker: the daemon; viewer: commands that read; operator: those that change the table; "
    "acceptance: an acceptance run, which has no FILE.",
)
@click.option(
    "--account",
    callback=parse_account,
    metavar="ID",
    help="Account of the tables and of streams without one; without it ARNs have * there.",
)
@click.option(
    "--kms-key",
    "kms_keys",
    multiple=True,
    callback=_keys,
    metavar="ARN",
    help="Key of your own with which a stream is encrypted; repeatable.",
)
@click.option(
    "--old-tables",
    is_flag=True,
    help="KCL 3.0 to 3.4 began the fleet, which has two more tables.",
)
@click.option(
    "--prefix",
    callback=parse_prefix,
    help=f"Of the role acceptance: begins all names; default: {PREFIX}.",
)
@click.option("--bucket", help="Of the role acceptance: the bucket of its PySpark children.")
def iam(
    file: str | None,
    *,
    role: str,
    account: str | None,
    kms_keys: tuple[str, ...],
    old_tables: bool,
    prefix: str | None,
    bucket: str | None,
) -> int:
    """Print the least IAM policy for the application that the properties FILE describes.

    Asks AWS nothing but, on an EC2 instance without another source, the region.
    """
    if role == _ACCEPTANCE:
        if file is not None or kms_keys or old_tables:
            raise click.UsageError(
                "the role acceptance takes --account, --prefix and --bucket only"
            )
        return _of_acceptance(account or "*", prefix or PREFIX, bucket)
    if prefix is not None or bucket is not None:
        raise click.UsageError("--prefix and --bucket are of the role acceptance")
    if file is None:
        file, _ = choose_properties_file((), ())  # refuses, in the words of other commands
    return _of_application(file, role, account, kms_keys, old_tables=old_tables)


def _of_acceptance(account: str, prefix: str, bucket: str | None) -> int:
    _note_unknown(account)
    policy = acceptance_policy(resolve_region(None), account, prefix, bucket)
    print_json(policy_document(policy))
    return 0


def _note_unknown(account: str) -> None:
    if account == "*":
        click.echo("The account is not known: write --account ID to narrow the ARNs", err=True)


def _of_application(
    file: str, role: str, account: str | None, kms_keys: tuple[str, ...], *, old_tables: bool
) -> int:
    config = read_config(file)
    if account is None:
        # A worker reads the stream of an ARN by its name, in its own account by default.
        is_elsewhere = config.stream.arn_addressing and config.traits.may_fan_out
        arn = None if is_elsewhere else config.stream.arn
        account = "*" if arn is None else arn.split(":")[4]
    _note_unknown(account)
    scope = PolicyScope(
        region=resolve_region(config.aws.kinesis_region or config.stream.region),
        account=account,
        kms_keys=kms_keys,
        has_old_tables=old_tables,
    )
    document = policy_document(least_policy(config, Role(role), scope))
    if len(json.dumps(document, separators=(",", ":"))) > _LONGEST:
        text = f"A managed policy has at most {_LONGEST} characters: divide this one"
        click.echo(text, err=True)
    print_json(document)
    return 0
