"""``kcl-mld validate`` and ``properties``: the values of a file, its errors, and all keys."""

from __future__ import annotations

import difflib
import json
import os
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.loading import build
from kcl_mld.cli.machine import on_any_machine, on_this_machine
from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.tables import print_json
from kcl_mld.config.config import CREDENTIAL_KEYS, KEYS
from kcl_mld.config.credentials import REGION, parse_chain
from kcl_mld.config.findings import Finding, Severity
from kcl_mld.config.keys import Effect, Key
from kcl_mld.config.spark.keys import FREE_PREFIXES, KEYS as SPARK_KEYS
from kcl_mld.errors import ConfigError
from kcl_mld.kernel.model.masking import mask, printable
from kcl_mld.streams.rules.stream_identity import check_regions, stream_to_read

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kcl_mld.config.build import Built
    from kcl_mld.config.settings import Setting
    from kcl_mld.config.spark.settings import SparkSetting

#: Properties that an environment variable stands in for, and the variables in their order.
_FROM_ENVIRONMENT = {
    "regionName": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "kinesisEndpoint": ("AWS_ENDPOINT_URL_KINESIS", "AWS_ENDPOINT_URL"),
    "dynamoDBEndpoint": ("AWS_ENDPOINT_URL_DYNAMODB", "AWS_ENDPOINT_URL"),
    "cloudWatchEndpoint": ("AWS_ENDPOINT_URL_CLOUDWATCH", "AWS_ENDPOINT_URL"),
}
_COLORS = {Severity.ERROR: "red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
_HEAD = """# Properties

Printed by `kcl-mld properties`. Defaults are in the unit of the name. Numbers and booleans are read
as Java reads them: "0 = unset" and "false = unset" mean that such a value, and a malformed one,
leaves the default. Names are case-sensitive; everything else in a file is ignored with a warning.
The defaults of keys marked "advanced" suit every application: leave them out of the file.

| property | read as | default | effect | meaning |
|---|---|---|---|---|"""

_SPARK_HEAD = f"""
## For children that run Spark

kcl-mld checks these and hands them to its children in `KCL_MLD_SPARK`; the Java daemon ignores them.
Keys below {", ".join(f"`{prefix}`" for prefix in FREE_PREFIXES)} are handed on as they are, others
with a warning.

| property | read as | default | meaning |
|---|---|---|---|"""


@click.command("validate")
@takes_properties_file()
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of text.")
@click.option(
    "--all",
    "show_all",
    is_flag=True,
    help="Include properties without effect in kcl-mld, and the defaults of advanced ones.",
)
@click.option(
    "--file-only",
    is_flag=True,
    help="Skip checks of this machine (program, profiles), for files that run elsewhere.",
)
def validate(file: str, *, as_json: bool, show_all: bool, file_only: bool) -> int:
    """Check FILE and show each effective value with its origin. Secrets are masked.

    Looks up the program as the daemon would, with the current directory and PATH. Calls nothing in
    AWS. Exits with 2 on any error or warning, else with 0.
    """
    try:
        built = build(file, worker_id="a fresh UUID at every start")
    except ConfigError as error:
        if not as_json:
            raise
        click.echo(json.dumps({"file": file, "valid": False, "error": mask(str(error))}))
        return error.exit_code
    built = on_any_machine(built, file) if file_only else on_this_machine(built, file)
    rows = [_row(built, setting, os.environ) for setting in built.settings]
    rows += [_spark_row(built, setting) for setting in built.spark]
    region = _effective(built.setting("regionName"), os.environ)[0]
    findings = [*_check_region(built, file, region), *_unknown_region(file, built, region)]
    built = built.with_findings(findings)
    suspicious = any(finding.severity is not Severity.INFO for finding in built.findings)
    if as_json:
        print_json(_as_json(file, built.findings, rows))
    else:
        _print_findings(file, built.findings)
        _print_rows([row for row in rows if show_all or row["shown"]])
    return 2 if suspicious else 0


def _row(built: Built, setting: Setting, environ: Mapping[str, str]) -> dict[str, Any]:
    key, shown, (text, origin) = setting.key, built.shown(setting), _effective(setting, environ)
    if key.name in CREDENTIAL_KEYS and setting.text is not None and setting.written is None:
        shown = str(parse_chain(setting.text)[0])
    if origin != setting.origin:
        shown = mask(text)
    used = key.effect is Effect.EFFECTIVE
    return {
        "key": key.name,
        "value": shown,
        "origin": origin,
        "effect": str(key.effect),
        "advanced": key.advanced,
        "shown": setting.text is not None or (used and shown != "" and not key.advanced),
    }


def _effective(setting: Setting, environ: Mapping[str, str]) -> tuple[str, str]:
    """The value of a text, and its origin: a variable may stand in for an absent one."""
    if setting.value is None:
        for variable in _FROM_ENVIRONMENT.get(setting.key.name, ()):
            if environ.get(variable):
                return environ[variable], f"environment {variable}"
    return str(setting.value or ""), setting.origin


def _spark_row(built: Built, setting: SparkSetting) -> dict[str, Any]:
    return {
        "key": setting.name,
        "value": built.shown(setting),
        "origin": setting.origin,
        "effect": Effect.EFFECTIVE.value,
        "advanced": False,
        "shown": setting.text is not None,
    }


def _check_region(built: Built, file: str, region: str) -> list[Finding]:
    """A region from the environment must be the stream's as well."""
    if built.config is None or built.config.stream.region is not None or not region:
        return []
    try:
        if built.config.streams is not None:
            check_regions(built.config.streams.streams, region)
        else:
            stream_to_read(built.config.stream, region, None)
    except ConfigError as error:
        return [Finding(Severity.ERROR, file, None, error.key, error.why)]
    return []


def _unknown_region(file: str, built: Built, region: str) -> list[Finding]:
    """A region that AWS does not have, as far as botocore knows; another server may have any."""
    endpoint, _ = _effective(built.setting("kinesisEndpoint"), os.environ)
    if not REGION.match(region) or endpoint:
        return []
    from kcl_mld.aws.regions import known_regions

    known = known_regions()
    if region in known:
        return []
    close = difflib.get_close_matches(region, known, n=3)
    text = f"this botocore knows no region {mask(region)}"
    advice = f"similar: {', '.join(close)}" if close else "update boto3 if the region is new"
    setting = built.setting("regionName")
    source = setting.source or file
    return [Finding(Severity.WARNING, source, setting.line, "regionName", text, advice)]


def _as_json(file: str, findings: Sequence[Finding], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "file": file,
        "valid": not any(finding.severity is Severity.ERROR for finding in findings),
        "findings": [
            {
                "severity": str(finding.severity),
                "line": finding.line,
                "key": finding.key,
                "text": finding.text,
                "suggestion": finding.suggestion,
            }
            for finding in findings
        ],
        "settings": {
            row["key"]: {name: row[name] for name in ("value", "origin", "effect")} for row in rows
        },
    }


def _print_findings(file: str, findings: Sequence[Finding]) -> None:
    counts = {
        severity: sum(finding.severity is severity for finding in findings) for severity in Severity
    }
    summary = ", ".join(f"{n} {word}{'s' * (n != 1)}" for word, n in counts.items() if n)
    click.echo(f"{file}: {summary or 'no errors or warnings'}")
    for finding in findings:
        severity = click.style(finding.severity, fg=_COLORS[finding.severity])
        subject = f"{finding.key}: " if finding.key is not None else ""
        click.echo(f"  {finding.place}: {severity}: {printable(subject + finding.text)}")
        if finding.suggestion:
            click.echo(f"      {printable(finding.suggestion)}")
    click.echo()


def _print_rows(rows: list[dict[str, Any]]) -> None:
    width = max(len(row["key"]) for row in rows)
    value_width = min(48, max(len(row["value"]) for row in rows))
    for row in rows:
        remark = "" if row["effect"] == Effect.EFFECTIVE else f"; {row['effect']}"
        remark += "; advanced" if row["advanced"] else ""
        value = printable(row["value"])
        click.echo(f"{row['key']:<{width}}  {value:<{value_width}}  {row['origin']}{remark}")


@click.command("properties")
def properties() -> None:
    """Print every property with its default and effect, as a Markdown table."""
    click.echo(_HEAD)
    for key in KEYS.values():
        click.echo(_property_row(key))
    click.echo(_SPARK_HEAD)
    for spark_key in SPARK_KEYS:
        click.echo(_spark_property_row(spark_key))


def _property_row(key: Key) -> str:
    kind = ", ".join(f"`{word}`" for word in key.choices) or str(key.kind)
    limit = f", at least {key.least}" if key.least is not None else ""
    limit += f", at most {key.most}" if key.most is not None else ""
    default = "" if key.default is None else f"`{str(key.default).replace('True', 'true')}`"
    default = default.replace("False", "false")
    effect = "effective; kcl-mld only" if key.own and key.effect is Effect.EFFECTIVE else key.effect
    return f"| `{key.name}` | {kind}{limit} | {default} | {effect} | {key.meaning} |"


def _spark_property_row(key: Key) -> str:
    kind = ", ".join(f"`{word}`" for word in key.choices) or str(key.kind)
    least = key.least or 0
    shown = f"{least / 2**20:g}m" if least >= 2**20 else f"{least:g}"
    limit = f", at least {shown}" if least else ""
    default = "" if key.default is None else f"`{key.default}`"
    return f"| `{key.name}` | {kind}{limit} | {default} | {key.meaning} |"
