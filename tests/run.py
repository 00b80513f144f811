"""The whole proof in one command: every test, then the coverage that the project promises.

``python tests/run.py [pytest arguments]``; without arguments everything runs on all cores and the
coverage bounds are checked: 95 % of branches and lines overall, 100 % of ``protocol`` and of the
pure modules.
"""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PURE = "protocol/*,mld/model/*,mld/decide/*,mld/spark/shard/batcher.py,mld/spark/parquet/chain.py,mld/spark/parquet/chain_layout.py,mld/spark/model.py,mld/spark/shard/resume.py"
OVERALL_PERCENT = 95


def run(*arguments, env=None):
    """Run a module of this interpreter and return its exit code."""
    print("+", *arguments, flush=True)
    return subprocess.call([sys.executable, "-m", *arguments], cwd=ROOT, env=env)


def main():
    """Exit code: that of pytest, or of the first coverage bound that is not met."""
    if sys.argv[1:]:
        return run("pytest", *sys.argv[1:])
    run("coverage", "erase")
    workers = str(max(2, os.cpu_count() or 2))
    env = os.environ | {"PYTHONHASHSEED": "random"}
    code = run("coverage", "run", "-m", "pytest", "-n", workers, "--dist", "loadfile", env=env)
    run("coverage", "combine", "--quiet")
    for broken in ROOT.glob(".coverage.*"):  # of a process that was killed while it wrote
        broken.unlink()
    bounds = [
        run("coverage", "report", f"--fail-under={OVERALL_PERCENT}"),
        run("coverage", "report", f"--include={PURE}", "--fail-under=100"),
    ]
    return code or next((bound for bound in bounds if bound), 0)


if __name__ == "__main__":
    sys.exit(main())
