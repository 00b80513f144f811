"""``kcl-mld properties``: the table of all properties as Markdown (``properties/KEYS.md``)."""

from __future__ import annotations

import click

from mld.model.config.config import KEYS
from mld.model.config.keys import Effect, Key
from mld.model.spark.keys import FREE_PREFIXES, KEYS as SPARK_KEYS

_HEAD = """# Properties

Printed by `kcl-mld properties`. Defaults are in the unit of the name. Numbers and booleans are read
as Java reads them: "0 = unset" and "false = unset" mean that such a value, and a malformed one,
leaves the default. Names are case-sensitive; everything else in a file is ignored with a warning.

| property | read as | default | effect | meaning |
|---|---|---|---|---|"""

_SPARK_HEAD = f"""
## For children that run Spark

kcl-mld checks these and hands them to its children in `KCL_MLD_SPARK`; the Java daemon ignores them.
Keys below {" and ".join(f"`{prefix}`" for prefix in FREE_PREFIXES)} are handed on as they are, others
with a warning.

| property | read as | default | meaning |
|---|---|---|---|"""


@click.command("properties")
def properties() -> None:
    """Print every property with its default and effect, as a Markdown table."""
    click.echo(_HEAD)
    for key in KEYS.values():
        click.echo(_row(key))
    click.echo(_SPARK_HEAD)
    for spark_key in SPARK_KEYS:
        click.echo(_spark_row(spark_key))


def _row(key: Key) -> str:
    kind = ", ".join(f"`{word}`" for word in key.choices) or str(key.kind)
    limit = f", at least {key.least}" if key.least is not None else ""
    default = "" if key.default is None else f"`{str(key.default).replace('True', 'true')}`"
    default = default.replace("False", "false")
    effect = "effective; kcl-mld only" if key.own and key.effect is Effect.EFFECTIVE else key.effect
    return f"| `{key.name}` | {kind}{limit} | {default} | {effect} | {key.doc} |"


def _spark_row(key: Key) -> str:
    kind = ", ".join(f"`{word}`" for word in key.choices) or str(key.kind)
    least = key.least or 0
    shown = f"{least / 2**20:g}m" if least >= 2**20 else f"{least:g}"
    limit = f", at least {shown}" if least else ""
    default = "" if key.default is None else f"`{key.default}`"
    return f"| `{key.name}` | {kind}{limit} | {default} | {key.doc} |"
