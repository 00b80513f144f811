"""``kcl-mld leases withdraw``: takes back what holders are asked by a command that is gone."""

from __future__ import annotations

import asyncio

import click

from kcl_mld.cli.fleet_access import observe
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_file_and_names
from kcl_mld.cli.steer_leases import (
    LeaseSteerer,
    changes_leases,
    check_chosen,
    chosen_leases,
    execute_steps,
)
from kcl_mld.leases.model.lease_request import SteerVerb
from kcl_mld.observe.rules.watching import Snapshots
from kcl_mld.ops.rules.steering import plan_withdrawal


@click.command("withdraw")
@takes_file_and_names("LEASE...")
@changes_leases
def withdraw(
    file: str,
    *,
    names: tuple[str, ...],
    is_all: bool,
    reason: str,
    execute: bool,
    output: str,
) -> int:
    """Take back what the owner of LEASE, a shard id or a lease key, is asked to do.

    A command that ends withdraws its requests itself; one that was killed could not. Only the
    request that was read is removed. Without --execute nothing is changed.
    """
    check_chosen(names, is_all=is_all)
    config = read_config(file)
    snapshots, _explanation = observe(config, once=True)
    watch = Snapshots(tuple(snapshots))
    chosen = chosen_leases(watch, names, is_all=is_all)
    steps = [plan_withdrawal(one, watch.last.wall_s) for one in chosen]
    steerer = LeaseSteerer(file, config, SteerVerb.WITHDRAW, reason)
    if execute:
        asyncio.run(execute_steps(config, steerer, steps))
    return steerer.report(steps, is_done=execute, output=output)
