"""What ``kcl-mld leases migrate`` prints."""

from __future__ import annotations

import base64
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from mld.decide.leases.lease_migration import MigrationPhase
from mld.model.masking import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mld.decide.leases.lease_migration import MigrationPlan, RowWrite
    from mld.model.leases.lease_move import RowKind

#: Progress is told after so many writes.
_TOLD_EVERY = 500
_DONE = {
    MigrationPhase.COPY: "copied",
    MigrationPhase.DELETE: "deleted",
    MigrationPhase.VALIDATE: "made valid",
}


def print_move(
    table: str, to: RowKind, identifier: str | None, move: MigrationPlan, *, done: bool
) -> None:
    """Print a plan for people.

    Args:
        table: name of the lease table.
        to: the kind of keys.
        identifier: ``account:stream:epoch`` of the moved rows, or None.
        move: the plan, without problems.
        done: whether it was carried out.
    """
    if not move.steps:
        click.echo(f"{table}: nothing to do, all rows have {to} keys")
        return
    moved = f"{move.moved} row{'s' * (move.moved != 1)}"
    of = f" of {identifier}" if identifier else ""
    click.echo(f"{table}: {moved}{of} {'moved' if done else 'to move'} to {to} keys\n")
    width = max(map(len, MigrationPhase))
    for step in move.steps:
        click.echo(f"  {step.phase:<{width}}  {_described(step)}")
    if move.kept:
        click.echo(f"\nLeft as they are: {', '.join(map(printable, move.kept))}")
    if not done:
        click.echo("\nNothing was written. Stop every worker, then run this with --apply.")


def _described(step: RowWrite) -> str:
    text = printable(step.key)
    if step.source is not None:
        text += f"  from {printable(step.source)}"
    if step.phase is MigrationPhase.COPY and step.after is not None:
        position = step.after.get("checkpoint", {}).get("S", "-")
        sub = step.after.get("checkpointSubSequenceNumber", {}).get("N", "0")
        text += f"  at {printable(position)}" + (f"/{sub}" if sub != "0" else "")
    return text


def move_as_json(
    table: str, to: RowKind, identifier: str | None, move: MigrationPlan, *, done: bool
) -> dict[str, Any]:
    """A plan for scripts; the arguments are those of :func:`print_move`.

    Items are DynamoDB JSON, binary values as base64.
    """
    return {
        "table": table,
        "to": str(to),
        "stream": identifier,
        "rows": move.moved,
        "written": done,
        "steps": [
            {
                "do": str(step.phase),
                "row": step.key,
                "from": step.source,
                "item": _plain(step.after),
            }
            for step in move.steps
        ],
        "left": list(move.kept),
    }


def _plain(value: Any) -> Any:
    """DynamoDB JSON with base64 for bytes, as in the service's own JSON."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "items"):
        return {name: _plain(one) for name, one in value.items()}
    return value


def print_progress(move: MigrationPlan) -> Callable[[RowWrite], None]:
    """Tells, on stderr, how far the writing is: at the end of each phase and now and then."""
    totals = Counter(step.phase for step in move.steps)
    done: Counter[MigrationPhase] = Counter()

    def tell(step: RowWrite) -> None:
        done[step.phase] += 1
        count, total = done[step.phase], totals[step.phase]
        if count == total or count % _TOLD_EVERY == 0:
            click.echo(f"{_DONE[step.phase]}: {count} of {total} rows", err=True)

    return tell
