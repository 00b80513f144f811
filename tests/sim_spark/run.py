"""One seed again, step by step, or many: ``python -m tests.sim_spark.run --kind delta --seed 7``."""

from __future__ import annotations

import argparse

from tests.sim_spark.stores import TABLES
from tests.sim_spark.world import judge


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a seed fails."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim_spark.run", description=__doc__)
    parser.add_argument("--kind", choices=[*TABLES], default="delta")
    parser.add_argument("--seed", type=int, default=0, help="the first")
    parser.add_argument("--seeds", type=int, default=1, help="how many; a single one is traced")
    options = parser.parse_args(arguments)
    failed = fenced = crashes = records = 0
    for seed in range(options.seed, options.seed + options.seeds):
        verdict = judge(options.kind, seed)
        failed += bool(verdict.violations)
        fenced += verdict.fenced
        crashes += verdict.crashes
        records += verdict.records
        if options.seeds == 1:
            print(verdict.report())
        elif verdict.violations:
            print(f"{verdict.replay}  # {verdict.violations[0]}")
    print(
        f"{options.kind}: {options.seeds} seeds, {failed} failed, {records} records, "
        f"{crashes} crashes, {fenced} fenced"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
