"""``kcl-mld leases reset``: checkpoints go where people choose."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.arguments import Duration, PointInTime
from kcl_mld.cli.fleet_access import observe, open_access
from kcl_mld.cli.lease_copies import LeaseCopy, SparkMarks
from kcl_mld.cli.lease_tables import shown_time
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_file_and_names
from kcl_mld.cli.steer_leases import LeaseSteerer, changes_leases, check_chosen, chosen_leases
from kcl_mld.config.child_command import spark_command
from kcl_mld.errors import ConfigError, MldError, MoveRefused, ResourceMissing
from kcl_mld.kernel.concurrency import for_each
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber
from kcl_mld.leases.model.lease_request import SteerVerb
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.observe.tip_reader import TipReader
from kcl_mld.ops.rules.lineage import missing_rows, plan_lineage
from kcl_mld.ops.rules.steering import SteerWay, plan_step
from kcl_mld.retrieval.position_search import FoundPosition, PositionSearch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kcl_mld.cli.fleet_access import FleetAccess
    from kcl_mld.config.config import Config
    from kcl_mld.config.stream import SourceTraits, Stream
    from kcl_mld.leases.model.lease import Lease
    from kcl_mld.ops.rules.steering import SteerStep

_AT_ONCE = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetTarget:
    """Where checkpoints go: exactly one of these."""

    to_trim_horizon: bool = False
    to_latest: bool = False
    to_timestamp: float | None = None
    rewind: float | None = None
    at_sequence_number: str | None = None
    after_sequence_number: str | None = None
    from_file: str | None = None

    @property
    def is_number(self) -> bool:
        """The target is a record of one shard."""
        return self.at_sequence_number is not None or self.after_sequence_number is not None


_TARGETS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "to_trim_horizon": (
        ("--to-trim-horizon", "--to-earliest"),
        {"is_flag": True, "help": "The oldest record."},
    ),
    "to_latest": (
        ("--to-latest",),
        {"is_flag": True, "help": "Behind the newest record that there is now."},
    ),
    "to_timestamp": (
        ("--to-timestamp", "--to-datetime"),
        {
            "type": PointInTime(),
            "metavar": "TIME",
            "help": "The first record of that time or later.",
        },
    ),
    "rewind": (
        ("--rewind", "--by-duration"),
        {
            "type": Duration(),
            "metavar": "DURATION",
            "help": "As --to-timestamp, so long ago: PT1H.",
        },
    ),
    "at_sequence_number": (
        ("--at-sequence-number",),
        {"metavar": "NUMBER", "help": "That record; of one shard."},
    ),
    "after_sequence_number": (
        ("--after-sequence-number",),
        {
            "metavar": "NUMBER[/SUB]",
            "help": "The record after that one; of one shard. With SUB, the sub-sequence number of a"
            " checkpoint, exactly that is stored.",
        },
    ),
    "from_file": (
        ("--from", "--from-file"),
        {"type": click.Path(), "metavar": "FILE", "help": "Checkpoints that export has printed."},
    ),
}


def _takes_target(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, (options, settings) in reversed(_TARGETS.items()):
        command = click.option(*options, name, **settings)(command)
    hidden = click.option("--shift-by", hidden=True, metavar="N")
    return hidden(command)


def _target(options: dict[str, Any]) -> ResetTarget:
    if options.pop("shift_by") is not None:
        raise click.UsageError(
            "--shift-by is not possible: sequence numbers do not count records. Use --rewind, or "
            "--at-sequence-number with a record that kcl-mld records peek shows"
        )
    given = {name: options.pop(name) for name in _TARGETS}
    if sum(one not in (None, False) for one in given.values()) != 1:
        words = ", ".join(options[0] for options, _settings in _TARGETS.values())
        raise click.UsageError(f"Say where to, by exactly one of {words}")
    target = ResetTarget(**given)
    after, _slash, sub = (target.after_sequence_number or "0").partition("/")
    for number in (target.at_sequence_number, after, sub or "0"):
        if number is not None and not (number.isascii() and number.isdigit() and len(number) < 200):
            raise click.UsageError("A sequence number has digits only")
    return target


def _copy(config: Config, target: ResetTarget) -> LeaseCopy | SparkMarks | None:
    """What ``--from`` names."""
    if spark_command(config.child.argv) is None:
        return None if target.from_file is None else LeaseCopy.read(target.from_file)
    if target.from_file is None:
        raise MoveRefused(
            "with kcl-mld-spark the marks in the output decide where a shard goes on, so a checkpoint "
            "that is moved would be ignored or lose records: begin an epoch with kcl-mld-spark "
            "new-epoch, keep what it prints in a file, and name that by --from"
        )
    return SparkMarks.read(target.from_file)


@click.command("reset")
@takes_file_and_names("LEASE...")
@_takes_target
@click.option(
    "--create",
    "creates",
    is_flag=True,
    help="Also make a row that was deleted, if no descendant of its shard has begun.",
)
@changes_leases
def reset(
    file: str,
    *,
    names: tuple[str, ...],
    creates: bool,
    is_all: bool,
    reason: str,
    execute: bool,
    output: str,
    **options: Any,
) -> int:
    """Move the checkpoint of LEASE, a shard id or a lease key.

    A kcl-mld worker that owns it ends the child as at a stop, moves the checkpoint and starts
    another child there. A row that nobody renews is written, and has no owner then. A lease of any
    other worker is refused. Without --execute nothing is changed.
    """
    target = _target(options)
    check_chosen(names, is_all=is_all)
    if target.is_number and (is_all or len(names) != 1):
        raise click.UsageError("A sequence number is of one shard: name that one")
    config = read_config(file)
    copy = _copy(config, target)
    snapshots, _explanation = observe(config, finished=True)
    watch = Snapshots(tuple(snapshots))
    meant = chosen_leases(watch, names, is_all=is_all, missing=missing_rows(watch))
    steerer = LeaseSteerer(file, config, SteerVerb.RESET, reason)
    steps, is_done = asyncio.run(
        _reset(config, watch, meant, target, copy, steerer, creates=creates, wants=execute)
    )
    return steerer.report(steps, is_done=is_done, output=output)


async def _reset(
    config: Config,
    watch: Snapshots,
    meant: Sequence[Lease],
    target: ResetTarget,
    copy: LeaseCopy | SparkMarks | None,
    steerer: LeaseSteerer,
    *,
    creates: bool,
    wants: bool,
) -> tuple[list[SteerStep], bool]:
    failover_s = config.leases.failover_s
    with open_access(config) as access:
        await access.streams.look({one.stream_identifier for one in meant}, fresh=True)
        positions = _Positions(access, watch, target, copy, config.traits)
        await positions.prepare(meant)
        steps: dict[str, SteerStep] = {}
        roots: dict[str, ExtendedSequenceNumber] = {}

        async def plan(lease: Lease) -> None:
            step = plan_step(watch, lease, SteerVerb.RESET, failover_s)
            is_root = lease.is_finished or lease.lease_key not in watch.last.leases
            if step.way is not SteerWay.REFUSED or is_root:
                try:
                    found = await positions.of(lease)
                except MldError as error:
                    step = replace(step, way=SteerWay.REFUSED, why=str(error))
                else:
                    if is_root:
                        roots[lease.lease_key] = found.position
                    step = plan_step(watch, lease, SteerVerb.RESET, failover_s, found.position)
                    if step.way is SteerWay.ASK and copy is not None and copy.needs_rest:
                        why = f"{lease.lease_owner} renews it: stop all workers"
                        step = replace(step, way=SteerWay.REFUSED, why=why)
                    facts = {
                        "behind_s": positions.behind_s.get(lease.lease_key),
                        "arrived_s": found.arrived_s,
                        "reads": found.reads,
                    }
                    steerer.show(lease.lease_key, facts)
            steps[lease.lease_key] = step

        await for_each(meant, _AT_ONCE, plan)
        lineage = plan_lineage(watch, roots, failover_s, creates=creates)
        steps |= {one.lease.lease_key: one for one in lineage}
        planned = [steps[key] for key in sorted(steps)]
        is_done = wants and not any(one.way is SteerWay.REFUSED for one in planned)
        if is_done:
            await steerer.carry_out(access, planned, watch.last.leases)
    return planned, is_done


class _Positions:
    """Finds the checkpoint that each lease is to get."""

    def __init__(
        self,
        access: FleetAccess,
        watch: Snapshots,
        target: ResetTarget,
        copy: LeaseCopy | SparkMarks | None,
        traits: SourceTraits,
    ) -> None:
        self._access = access
        self._traits = traits
        self._copy = copy
        self._now_s = watch.last.wall_s
        self._target = target
        self._copied: dict[str, ExtendedSequenceNumber] = {}
        #: Lag of the present checkpoint by lease key; None = not known.
        self.behind_s: dict[str, float | None] = {}

    async def prepare(self, meant: Sequence[Lease]) -> None:
        """Read the copy, if there is one; ask how far the leases are behind now."""
        kinesis, clock = self._access.kinesis, self._access.clock
        at_s = self._target.to_timestamp
        if at_s is not None and at_s > self._now_s:
            raise click.UsageError(f"{shown_time(at_s)} is in the future")
        if self._copy is not None:
            self._copied = await self._copy.positions_of(self._access, meant)
        if self._traits.most_readers is not None:
            return  # the search of the place is a reader, too
        tips = TipReader(kinesis, clock, kinesis.clock.now_s, self._access.begins_s)
        found = await tips.ask(
            [one for one in meant if one.lease_owner or one.lease_counter],
            self._access.streams.streams,
        )
        self.behind_s = {key: tip.behind_s for key, tip in found.items()}

    async def of(self, lease: Lease) -> FoundPosition:
        """The checkpoint for one lease.

        Raises:
            MldError: it can't be found.
        """
        found = await self._found(lease)
        position = found.position
        if position.sentinel is not None:
            return found
        number = position.sequence_number.zfill(self._traits.least_digits)
        return replace(found, position=replace(position, sequence_number=number))

    async def _found(self, lease: Lease) -> FoundPosition:
        target = self._target
        if target.to_trim_horizon or target.from_file is not None:
            copied = self._copied.get(lease.lease_key)
            if target.from_file is not None and copied is None:
                raise MoveRefused(f"{target.from_file} has no checkpoint of it")
            return FoundPosition(
                position=copied or TRIM_HORIZON, arrived_s=None, reads=0, records=0
            )
        after, _slash, sub = (target.after_sequence_number or "").partition("/")
        if sub:
            position = ExtendedSequenceNumber(after, int(sub))
            return FoundPosition(position=position, arrived_s=None, reads=0, records=0)
        stream = self._stream_of(lease)
        search = PositionSearch(self._access.kinesis, stream, lease.shard_id)
        if target.at_sequence_number is not None:
            return await search.before_number(target.at_sequence_number)
        if target.after_sequence_number is not None:
            return await search.at_number(target.after_sequence_number)
        if target.to_latest:
            return await search.tip(self._now_s)
        at_s = target.to_timestamp
        return await search.before_time(
            self._now_s - (target.rewind or 0) if at_s is None else at_s
        )

    def _stream_of(self, lease: Lease) -> Stream:
        stream = self._access.streams.streams.get(lease.stream_identifier)
        if stream is None:
            raise ResourceMissing(f"the stream of {lease.lease_key} does not exist")
        mark = lease.stream_mark
        if mark is not None and mark.rpartition(":")[2] != stream.name:
            raise ConfigError(f"the row is of stream {mark}, which the file does not name")
        return stream
