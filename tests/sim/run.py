"""Many seeds from the command line: ``python -m tests.sim.run --seeds 10000 --first-seed 0``."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from os import cpu_count
from typing import TYPE_CHECKING

from tqdm import tqdm

from tests.sim.fleet import Verdict, judge
from tests.sim.plan import Plan, children_plan, draw
from tests.sim.table_stream import table_plan

if TYPE_CHECKING:
    from collections.abc import Iterable


REGRESSIONS = pathlib.Path(__file__).with_name("regressions.txt")


def regressions() -> list[int]:
    """Seeds that failed once."""
    lines = (line.partition("#")[0].strip() for line in REGRESSIONS.read_text().splitlines())
    return [int(line) for line in lines if line]


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1)
    parser.add_argument(
        "--tables", action="store_true", help="fleets that read the stream of a DynamoDB table"
    )
    parser.add_argument(
        "--children", action="store_true", help="fleets with several children a shard"
    )
    parser.add_argument("--trace", action="store_true", help="print every row of every seed")
    parser.add_argument(
        "--keep-going", action="store_true", help="do not stop at the first failure"
    )
    options = parser.parse_args(arguments)
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    plans: Iterable[int | Plan] = map(table_plan, seeds) if options.tables else seeds
    if options.children:
        plans = [
            children_plan(seed, plan) for seed, plan in zip(seeds, map(_plan, plans), strict=True)
        ]
    if options.trace:
        return _trace(plans)
    known = [] if options.tables or options.children else regressions()
    return _run_all([*known, *plans], options.jobs, keep_going=options.keep_going)


def _plan(plan: int | Plan) -> Plan:
    return draw(plan) if isinstance(plan, int) else plan


#: What is told of all seeds together.
_TOLD = ("child", "sibling", "child failed", "reminder", "begun inside an aggregate")
#: Seeds from one line to the next where no terminal shows the progress.
_TOLD_EVERY = 50


def _trace(seeds: Iterable[int | Plan]) -> int:
    failed = 0
    for seed in seeds:
        verdict = judge(seed, rows=1_000_000)
        print(verdict.report())
        failed += bool(verdict.violations)
    return 1 if failed else 0


def _run_all(seeds: list[int | Plan], jobs: int, *, keep_going: bool) -> int:
    failed: list[int] = []
    ran = records = duplicates = 0
    virtual_s = 0.0
    counts: Counter[str] = Counter()
    with ProcessPoolExecutor(jobs) as pool:
        bar = tqdm(total=len(seeds), unit="seed", file=sys.stderr, disable=None)
        for verdict in pool.map(judge, seeds):
            bar.update()
            ran += 1
            records += verdict.records
            duplicates += verdict.duplicates
            counts.update(verdict.counts)
            virtual_s += verdict.virtual_s
            if bar.disable and ran % _TOLD_EVERY == 0:
                print(f"{ran} of {len(seeds)} seeds, {len(failed)} failed", file=sys.stderr)
            if verdict.violations:
                failed.append(verdict.seed)
                bar.set_postfix(failed=len(failed))
                bar.clear()
                print(verdict.report(), flush=True)
                if not keep_going:
                    pool.shutdown(wait=False, cancel_futures=True)
                    break
        bar.close()
    print(
        f"{ran} seeds, {virtual_s / 3600:.1f} virtual hours, {records} records, "
        f"{duplicates} processed more than once, {len(failed)} failed"
        + (f": {failed}" if failed else "")
    )
    if told := [f"{counts[what]} x {what}" for what in _TOLD if counts[what]]:
        print(", ".join(told))
    return 1 if failed else 0


__all__ = ["Verdict", "main", "regressions"]

if __name__ == "__main__":
    sys.exit(main())
