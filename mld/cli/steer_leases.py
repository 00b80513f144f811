"""``kcl-mld leases release``, ``pause`` and ``resume``; how all commands change leases."""

from __future__ import annotations

import asyncio
import contextlib
import getpass
import shlex
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.arguments import DAY_S, Duration, is_named
from kcl_mld.cli.fleet_access import observe, open_access
from kcl_mld.cli.fleet_documents import VERSION
from kcl_mld.cli.interruptible import run_interruptible
from kcl_mld.cli.lease_tables import seconds, shown_time
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_execute, takes_file_and_names
from kcl_mld.cli.tables import Column, Section, TableRow, as_table, print_json, terminal
from kcl_mld.errors import ConfigError, MldError, MoveRefused
from kcl_mld.kernel.adapters.system import RandomIds
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.model.masking import printable
from kcl_mld.kernel.model.text import counted
from kcl_mld.leases.model.lease_request import LeaseRequest, SteerVerb
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.ops.lease_steering import SHIELD_S, LeaseSteering
from kcl_mld.ops.rules.steering import SteerWay, plan_step

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from kcl_mld.cli.fleet_access import FleetAccess
    from kcl_mld.config.config import Config
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.ops.rules.steering import SteerStep

_AT_ONCE = 8
#: Seconds after which a request expires, if its command could not withdraw it.
_EXPIRES_S = 900.0
_MOST_PAUSE_S = 7 * DAY_S
_MOST_REASON = 500


def _reason(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    if len(text) > _MOST_REASON:
        raise click.BadParameter(f"it has {len(text)} characters; at most {_MOST_REASON} are kept")
    if not text.isprintable():  # a byte that is no UTF-8 could not be written either
        raise click.BadParameter("it has characters that can't be printed; write it in one line")
    return text


def changes_leases(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--all``, ``--reason``, ``--execute`` and ``-o``."""
    options: list[Callable[..., Any]] = [
        click.option("--all", "is_all", is_flag=True, help="Every lease that is not finished."),
        click.option(
            "--reason",
            default="",
            metavar="TEXT",
            callback=_reason,
            help="Reason for the change; it is stored in the rows of the leases.",
        ),
        takes_execute,
        click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table"),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def check_chosen(names: Sequence[str], *, is_all: bool) -> None:
    """Check the names before the table is read, which takes the failover time.

    Raises:
        UsageError: no lease is named, or ``--all`` and names.
    """
    if is_all == bool(names):
        raise click.UsageError("Name shards behind the properties file, or give --all; not both")


def chosen_leases(
    snapshots: Snapshots,
    names: Sequence[str],
    *,
    is_all: bool,
    missing: Mapping[str, Lease] | None = None,
) -> list[Lease]:
    """The rows that the names choose.

    Args:
        missing: rows that are not there and may be named all the same, by key.

    Raises:
        ConfigError: a name is no lease, or a shard of several streams.
    """
    rows = [snapshots.last.leases[key] for key in sorted(snapshots.last.leases)]
    if is_all:
        return [one for one in rows if not one.is_finished]
    rows += (missing or {}).values()
    found: dict[str, Lease] = {}
    for name in names:
        meant = [one for one in rows if is_named(one.lease_key, name)]
        if not meant:
            raise ConfigError(f"{name} is no lease of the table; kcl-mld leases list shows them")
        if len(meant) > 1:
            keys = ", ".join(one.lease_key for one in meant)
            raise ConfigError(f"{name} is a shard of several streams; name one of {keys}")
        found[meant[0].lease_key] = meant[0]
    return list(found.values())


class LeaseSteerer:
    """One command that changes leases: its plan, and its outcome.

    Args:
        until_s: epoch seconds at which a pause ends.
    """

    def __init__(
        self,
        file: str,
        config: Config,
        verb: SteerVerb,
        reason: str,
        until_s: float | None = None,
    ) -> None:
        self._file = file
        self._config = config
        self._verb = verb
        self._by = f"{_user()}@{socket.gethostname()}"
        self._reason = reason
        self._request_id = RandomIds().new_id()
        self._until_s = until_s
        self._failures: dict[str, str] = {}
        self._asked: dict[str, LeaseRequest] = {}
        #: The signal that ended it early; None = none.
        self.interrupted_by: int | None = None
        self._facts: dict[str, dict[str, Any]] = {}

    def show(self, lease_key: str, facts: dict[str, Any]) -> None:
        """Show facts about a lease in the report; their names are those of ``_FACTS``."""
        self._facts[lease_key] = facts

    async def carry_out(
        self, access: FleetAccess, steps: Sequence[SteerStep], existing: Container[str] = ()
    ) -> None:
        """Carry out the plan; a lease that can't be changed leaves the others alone.

        A signal, and any error, withdraws requests that are not carried out yet.

        Args:
            existing: keys of the rows that exist, for leases that are written together.
        """
        steering = LeaseSteering(access.dynamodb, access.store, access.clock)
        due = [one for one in steps if one.way in (SteerWay.WRITE, SteerWay.ASK, SteerWay.TOGETHER)]
        # True of every lease whose result does not arrive.
        text = "the command ended before; whether it is done is not known"
        self._failures = {one.lease.lease_key: text for one in due}
        self._asked = steering.asked
        try:
            self.interrupted_by = await run_interruptible(
                self._carry_out(access, steering, due, existing), steering.interrupt, SHIELD_S
            )
        finally:
            for line in self._still_asked():
                _tell(line)

    def _still_asked(self) -> Iterator[str]:
        """What could not be withdrawn, and how it is taken back later."""
        for key, request in sorted(self._asked.items()):
            command = shlex.join(["kcl-mld", "leases", "withdraw", self._file, key, "--execute"])
            yield (
                f"{key}: {request.holder} is still asked to {request.verb} it, until "
                f"{shown_time(request.expires_s)}; take that back with: {command}"
            )

    async def _carry_out(
        self,
        access: FleetAccess,
        steering: LeaseSteering,
        due: Sequence[SteerStep],
        existing: Container[str],
    ) -> None:
        leases = self._config.leases
        term_s = self._config.child.term_grace_s
        timeout_s = 2 * leases.failover_s + leases.hand_off_timeout_s + term_s
        if due and access.clock.ahead_s() is None:
            # Any answer has the time by which a holder judges whether a request has expired.
            with contextlib.suppress(MldError):
                await access.store.get(due[0].lease.lease_key, consistent=True)

        async def do(step: SteerStep) -> None:
            key = step.lease.lease_key
            _tell(f"{key}: {'asking' if step.way is SteerWay.ASK else 'writing'}")
            try:
                why = await steering.carry_out(step, self._request_of(step, access), timeout_s)
            except MldError as error:
                why = str(error)
            self._ended(key, why)

        await for_each((one for one in due if one.way is not SteerWay.TOGETHER), _AT_ONCE, do)
        await self._carry_out_together(
            access, steering, [one for one in due if one.way is SteerWay.TOGETHER], existing
        )

    def _ended(self, lease_key: str, why: str | None) -> None:
        if why is None:
            del self._failures[lease_key]
        else:
            self._failures[lease_key] = why

    async def _carry_out_together(
        self,
        access: FleetAccess,
        steering: LeaseSteering,
        steps: list[SteerStep],
        existing: Container[str],
    ) -> None:
        if not steps:
            return
        _tell(f"writing {len(steps)} leases together")
        pairs = [(one, self._request_of(one, access)) for one in steps]
        try:
            why = await steering.carry_out_together(pairs, existing, self._request_id)
        except MldError as error:
            why = str(error)
        for one in steps:
            self._ended(one.lease.lease_key, why)

    def _request_of(self, step: SteerStep, access: FleetAccess) -> LeaseRequest:
        position = step.position
        return LeaseRequest(
            request_id=self._request_id,
            verb=str(self._verb),
            holder=str(step.lease.lease_owner) if step.way is SteerWay.ASK else "",
            expires_s=float(round(access.clock.corrected() + _EXPIRES_S)),
            sequence_number=None if position is None else str(position.sequence_number),
            sub_sequence_number=0 if position is None else position.sub_sequence_number,
            until_s=self._until_s,
            by=self._by,
            reason=self._reason,
        )

    def report(self, steps: Sequence[SteerStep], *, is_done: bool, output: str) -> int:
        """Print the plan, or the outcome.

        Returns:
            The exit code: 0, or 128 + the signal that ended it early.

        Raises:
            MoveRefused: something was refused or failed; it is printed before.
        """
        if self.interrupted_by is not None:
            with suppress(OSError):  # the terminal may be gone
                print_json(self._document(steps, is_done=is_done))
            return 128 + self.interrupted_by
        if output == "json" or is_done:
            print_json(self._document(steps, is_done=is_done))
        else:
            click.echo(self._text(steps))
        refused = [one for one in steps if one.way is SteerWay.REFUSED]
        if refused and not is_done:
            none = "it is not changed" if len(steps) == 1 else "none is changed"
            raise MoveRefused(f"{_share(len(refused), len(steps))} refused; {none}")
        if self._failures:
            share = _share(len(self._failures), len(steps))
            raise MoveRefused(f"{share} not changed; run the command again")
        return 0

    def _document(self, steps: Sequence[SteerStep], *, is_done: bool) -> dict[str, Any]:
        return {
            "version": VERSION,
            "table": self._config.leases.table_name,
            "verb": str(self._verb),
            "request": self._request_id,
            "by": self._by,
            "reason": self._reason,
            "executed": is_done,
            "leases": [self._as_json(one, is_done=is_done) for one in steps],
        }

    def _as_json(self, step: SteerStep, *, is_done: bool) -> dict[str, Any]:
        key = step.lease.lease_key
        failure = self._failures.get(key)
        is_due = step.way in (SteerWay.WRITE, SteerWay.ASK, SteerWay.TOGETHER)
        return {
            "lease": key,
            "owner": step.lease.actual_owner,
            "way": str(step.way),
            "done": is_done and is_due and failure is None,
            "why": failure or step.why,
            "before": position_as_json(step.lease.checkpoint),
            "after": position_as_json(step.position),
            "notes": list(step.notes),
            **self._facts.get(key, {}),
        }

    def _text(self, steps: Sequence[SteerStep]) -> str:
        names = [name for name in _FACTS if any(name in one for one in self._facts.values())]
        is_reset = self._verb is SteerVerb.RESET
        columns = [
            Column("lease", keeps_end=True),
            Column("owner", least=8, rank=2),
            Column("checkpoint", least=8, keeps_end=True),
            *([Column("new checkpoint", least=8, keeps_end=True)] if is_reset else []),
            *(Column(_FACTS[name][0], least=8, rank=1) for name in names),
            Column("what", least=20),
        ]
        rows = []
        for one in steps:
            facts = self._facts.get(one.lease.lease_key, {})
            after = ["-" if one.position is None else str(one.position)] if is_reset else []
            cells = [one.lease.lease_key, one.lease.actual_owner or "-", str(one.lease.checkpoint)]
            cells += [*after, *(_shown_fact(name, facts) for name in names), _shown_outcome(one)]
            is_bad = one.way is SteerWay.REFUSED
            rows.append(TableRow(tuple(cells), "red" if is_bad else None))
        head = f"{printable(self._config.leases.table_name)}: {self._verb}, a dry run"
        table = as_table(columns, [Section("", tuple(rows))], terminal())
        is_refused = any(one.way is SteerWay.REFUSED for one in steps)
        hint = "" if is_refused else " --execute does it."
        return f"{head}\n\n{table}\n\nNothing was written.{hint}"


def _tell(text: str) -> None:
    """Print a line of progress; a closed output must not end the work."""
    with suppress(OSError):
        click.echo(printable(text), err=True)


def _share(number: int, of: int) -> str:
    return f"{number} of {counted(of, 'lease', 'leases')} {'is' if number == 1 else 'are'}"


def _shown_fact(name: str, facts: dict[str, Any]) -> str:
    value = facts.get(name)
    return "-" if value is None else _FACTS[name][1](value)


def _shown_outcome(step: SteerStep) -> str:
    words = {
        SteerWay.WRITE: "the row is written",
        SteerWay.ASK: f"{step.lease.lease_owner} is asked",
        SteerWay.TOGETHER: "the row is written, with its lineage",
        SteerWay.NONE: "nothing to do",
        SteerWay.REFUSED: "refused",
    }
    text = words[step.way] + (f": {step.why}" if step.why else "")
    return "; ".join([text, *(() if step.why else step.notes)])


def position_as_json(position: Any) -> dict[str, Any] | None:
    """A checkpoint as the row has it; None = there is none."""
    if position is None:
        return None
    return {
        "checkpoint": str(position.sequence_number),
        "sub_sequence_number": position.sub_sequence_number,
    }


#: Further facts about a lease: key in JSON, heading of the column, and how it is shown.
_FACTS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "behind_s": ("lag", seconds),
    "arrived_s": ("arrived", shown_time),
    "reads": ("reads", str),
    "until_s": ("until", shown_time),
    "retention_left_s": ("retention left then", seconds),
}


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no variable, and no entry for the user id
        return "unknown"


def _steer(
    verb: SteerVerb,
    file: str,
    names: tuple[str, ...],
    *,
    is_all: bool,
    reason: str,
    execute: bool,
    output: str,
    for_s: float | None = None,
) -> int:
    check_chosen(names, is_all=is_all)
    config = read_config(file)
    snapshots, _explanation = observe(config, tip=for_s is not None)
    watch = Snapshots(tuple(snapshots))
    steps = [
        plan_step(watch, one, verb, config.leases.failover_s)
        for one in chosen_leases(watch, names, is_all=is_all)
    ]
    until_s = None if for_s is None else round(watch.last.wall_s + for_s)
    steerer = LeaseSteerer(file, config, verb, reason, None if until_s is None else float(until_s))
    if for_s is not None:
        for one in steps:
            left_s = _retention_left_s(watch, one.lease, for_s)
            facts = {"until_s": until_s, "retention_left_s": left_s}
            steerer.show(one.lease.lease_key, facts)
    is_done = execute and not any(one.way is SteerWay.REFUSED for one in steps)
    if is_done:
        asyncio.run(execute_steps(config, steerer, steps))
    return steerer.report(steps, is_done=is_done, output=output)


async def execute_steps(config: Config, steerer: LeaseSteerer, steps: Sequence[SteerStep]) -> None:
    """Carry out the plan."""
    with open_access(config) as access:
        await steerer.carry_out(access, steps)


def _retention_left_s(watch: Snapshots, lease: Lease, for_s: float) -> float | None:
    """When the pause ends: until records behind the checkpoint are lost; None = not known."""
    stream, tip = watch.streams.get(lease.stream_identifier), watch.last.tips.get(lease.lease_key)
    if stream is None or stream.retention_s is None or tip is None or tip.behind_s is None:
        return None
    return round(stream.retention_s - tip.behind_s - for_s)


@click.command("release")
@takes_file_and_names("LEASE...")
@changes_leases
def release(file: str, *, names: tuple[str, ...], **options: Any) -> int:
    """Take LEASE, a shard id or a lease key, from its owner, so that any worker may get it.

    A kcl-mld worker that owns it ends the child as at a stop, then gives the lease up. The owner of
    a row that nobody renews is removed. Without --execute nothing is changed.
    """
    return _steer(SteerVerb.RELEASE, file, names, **options)


@click.command("pause")
@takes_file_and_names("LEASE...")
@click.option(
    "--for",
    "for_s",
    type=Duration(),
    default="PT1H",
    show_default=True,
    metavar="DURATION",
    help="Length of the pause; at most P7D.",
)
@changes_leases
def pause(file: str, *, names: tuple[str, ...], for_s: float, **options: Any) -> int:
    """Have the owner of LEASE, a shard id or a lease key, keep it without reading.

    The child is ended as at a stop. Records stay in the stream for its retention, which is shown.
    Refused while a worker that is not kcl-mld lives, because it would read the shard if it got the
    lease. Without --execute nothing is changed.
    """
    if not 0 < for_s <= _MOST_PAUSE_S:
        raise click.UsageError("--for is to be longer than PT0S, and at most P7D")
    return _steer(SteerVerb.PAUSE, file, names, for_s=for_s, **options)


@click.command("delete")
@takes_file_and_names("LEASE...")
@changes_leases
def delete(file: str, *, names: tuple[str, ...], **options: Any) -> int:
    """Delete the row of LEASE, a shard id or a lease key, with its checkpoint.

    Only of a shard that is past the retention of its stream, or of a stream that the file does not
    name, and only while nobody renews it. Without --execute nothing is changed.
    """
    if options["is_all"]:
        raise click.UsageError("--all is not for delete: name the leases")
    if not names:
        raise click.UsageError("Name the leases behind the properties file")
    return _steer(SteerVerb.DELETE, file, names, **options)


@click.command("resume")
@takes_file_and_names("LEASE...")
@changes_leases
def resume(file: str, *, names: tuple[str, ...], **options: Any) -> int:
    """End the pause of LEASE, a shard id or a lease key. Without --execute nothing is changed."""
    return _steer(SteerVerb.RESUME, file, names, **options)
