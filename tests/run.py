"""The whole proof in one command: every test, then the coverage that the project promises.

``python tests/run.py [pytest arguments]``; without arguments everything runs on all cores, under
coverage. The bounds: 95 % of branches and lines overall, 100 % of ``protocol`` and of the pure modules.
Tests that add no line run without the tracer, see ``tests/tracing.py``: simulated fleets, fleets and
clusters of Spark children, what ``KCL_MLD_PEER`` asks for of other workers, and more.

``-p tests.cpu_report`` says after any run of pytest which tests, files and fixtures cost most.

The order is random. The seed is in pytest's header; ``python tests/run.py -p no:xdist
--randomly-seed=SEED [paths]`` repeats an order.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PURE = "protocol/*,mld/model/*,mld/decide/*,mld/spark/shard/batcher.py,mld/spark/model.py,mld/spark/shard/resume.py,mld/spark/table/manifest.py,mld/spark/table/marks.py,mld/spark/table/rules.py"
OVERALL_PERCENT = 95


def run(*arguments, env=None):
    """Run a module of this interpreter and return its exit code."""
    print("+", *arguments, flush=True)
    return subprocess.call([sys.executable, "-m", *arguments], cwd=ROOT, env=env)


def main():
    """Exit code: that of the first step that failed; all are run."""
    if sys.argv[1:]:
        return run("pytest", *sys.argv[1:])
    run("coverage", "erase")
    # What shares a server is a group: one server for all of them, and not one a worker.
    # Servers start and leases expire: tests wait, too, so three more than cores.
    spread = ("-n", str((os.cpu_count() or 2) + 3), "--dist=loadgroup", "--durations=40")
    env = os.environ | {"PYTHONHASHSEED": "random"}
    # Else each of some thousand processes would compile all modules again.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    codes = [run("coverage", "run", "-m", "pytest", *spread, "tests", env=env)]
    run("coverage", "combine", "--quiet")
    for broken in ROOT.glob(".coverage.*"):  # of a process that was killed while it wrote
        broken.unlink()
    codes += [
        run("coverage", "report", f"--fail-under={OVERALL_PERCENT}"),
        run("coverage", "report", f"--include={PURE}", "--fail-under=100"),
    ]
    return next((code for code in codes if code), 0)


if __name__ == "__main__":
    sys.exit(main())
