"""All tests in two commands, see ``tests/parts.py``.

``python tests/run.py`` is the quick part: all but what takes minutes, on all cores.

``python tests/run.py proof`` is the rest, and what coverage traces once more under the tracer; then
the coverage that the project promises: 95 % of branches and lines overall, 100 % of ``protocol``
and of the pure modules. Tests that add no line run without the tracer, see ``tests/tracing.py``.

Other arguments are pytest's. ``-p tests.cpu_report`` says after any run of pytest which tests, files and fixtures cost most.

The order is random. The seed is in pytest's header; ``python tests/run.py -p no:xdist
--randomly-seed=SEED [paths]`` repeats an order.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PURE = "protocol/*,mld/*/model/*,mld/*/rules/*,mld/config/*,mld/spark/iceberg/marks.py,mld/spark/shard/batcher.py,mld/spark/model.py,mld/spark/shard/resume.py,mld/spark/table/manifest.py,mld/spark/table/marks.py,mld/spark/table/rules.py"
OVERALL_PERCENT = 95


def run(*arguments, env=None):
    """Run a module of this interpreter and return its exit code."""
    print("+", *arguments, flush=True)
    return subprocess.call([sys.executable, "-m", *arguments], cwd=ROOT, env=env)


def spread(part, env):
    """The arguments that run a part of the tests on all cores, for pytest."""
    # Else each of some thousand processes would compile all modules again.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONHASHSEED"] = "random"
    # What shares a server is a group: one server for all of them, and not one a worker.
    # Servers start and leases expire: tests wait, too, so three more than cores.
    workers = str((os.cpu_count() or 2) + 3)
    return "pytest", "-n", workers, "--dist=loadgroup", "--durations=40", f"--part={part}", "tests"


def main():
    """Exit code: that of the first step that failed; all are run."""
    env = dict(os.environ)
    if not sys.argv[1:]:
        return run(*spread("quick", env), env=env)
    if sys.argv[1:] != ["proof"]:
        return run("pytest", *sys.argv[1:])
    run("coverage", "erase")
    env["KCL_MLD_PAGES"] = "all"
    codes = [run("coverage", "run", "-m", *spread("proof", env), env=env)]
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
