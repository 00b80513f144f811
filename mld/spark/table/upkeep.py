"""``kcl-mld-spark history | optimize | vacuum TABLE``: looking after a Delta table while workers run.

Compaction is no conflict for the commits of workers, nor are theirs for it. Vacuum takes what
the log says was removed, and old files that it never named, but none in the directories of jobs: so
it never sees the files of a job that is not committed yet.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

from mld.spark.errors import MissingPart, SinkRefused, SparkChildError
from mld.spark.table.disk import local_root, sync_directory
from mld.spark.table.job_files import OWNER_PREFIX

try:
    from deltalake import DeltaTable, PostCommitHookProperties
    from deltalake.exceptions import DeltaError, TableNotFoundError
except ImportError as missing:  # pragma: no cover - the tests have it
    raise MissingPart("deltalake is missing: pip install 'kcl-mld[spark]'") from missing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: Below this, readers of an older version lose its files under their hands, in hours.
LEAST_RETENTION_H = 24
#: What the log does not name may be of a commit that is still to come, for so many hours.
_UNNAMED_H = 168
_MIB = 1024 * 1024
_NO_HOOKS = PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)


def main(argv: Sequence[str]) -> int:
    """Run one command.

    Args:
        argv: its name and its arguments.

    Returns:
        exit code: 0, 2 = wrong arguments or no table, 70 = it failed; the table is as it was.
    """
    options = _parse(argv)
    try:
        table = _open(options.table)
        match options.command:
            case "history":
                lines = history(table, options.limit)
            case "optimize":
                lines = [optimize(table, options.target_mib)]
            case _:
                lines = [vacuum(table, options.retention_hours, is_trial=options.dry_run)]
    except SparkChildError as error:
        sys.stderr.write(f"kcl-mld-spark {options.command}: {error}\n")
        return error.exit_code
    except (DeltaError, OSError) as error:
        sys.stderr.write(f"kcl-mld-spark {options.command}: {options.table}: {error}\n")
        return 70
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def history(table: DeltaTable, limit: int) -> list[str]:
    """A line a commit, the newest first."""
    lines = []
    for commit in table.history(limit):
        about = {**commit, **commit.get("operationMetrics", {})}
        moment = datetime.fromtimestamp(int(about["timestamp"]) / 1000, UTC)
        words = [f"{about.get('version', '?'):>8}", f"{moment:%Y-%m-%d %H:%M:%S} UTC"]
        words.append(str(about.get("operation", "?")))
        lines.append("  ".join(words))
    return lines


def optimize(table: DeltaTable, target_mib: int | None) -> str:
    """Merge small files; what was done.

    Args:
        table: at its newest version.
        target_mib: how large files become, in MiB; None = as the table or Delta says.
    """
    found: dict[str, Any] = table.optimize.compact(
        target_size=None if target_mib is None else target_mib * _MIB,
        post_commithook_properties=_NO_HOOKS,
    )
    added, removed = found["numFilesAdded"], found["numFilesRemoved"]
    if not removed:
        return "nothing to merge"
    table.update_incremental()
    _sync(table)
    return f"{removed} files were merged into {added}"


def vacuum(table: DeltaTable, retention_hours: int | None, *, is_trial: bool) -> str:
    """Remove files that have not been part of the table for long; what was done.

    Args:
        table: at its newest version.
        retention_hours: how long; None = as the table says, a week by default.
        is_trial: True = only count them.
    """
    paths = table.vacuum(
        retention_hours=retention_hours,
        dry_run=is_trial,
        enforce_retention_duration=False,
        full=False,
        post_commithook_properties=_NO_HOOKS,
    )
    unnamed = _unnamed(table, retention_hours)
    if not is_trial:
        for path in unnamed:
            path.unlink(missing_ok=True)
        _drop_empty_jobs(_root(table))
    return f"{len(paths) + len(unnamed)} files {'would be' if is_trial else 'were'} removed"


def _unnamed(table: DeltaTable, retention_hours: int | None) -> list[Path]:
    """Old data files outside of our jobs that the log never named: of merges that were refused."""
    found = table.vacuum(
        retention_hours=None if retention_hours is None else max(retention_hours, _UNNAMED_H),
        dry_run=True,
        enforce_retention_duration=False,
        full=True,
    )
    root = _root(table)
    paths = [root / each for each in found if not each.startswith(OWNER_PREFIX)]
    return [path for path in paths if path.suffix == ".parquet" and path.exists()]


def _open(text: str) -> DeltaTable:
    root = local_root(text, "delta")
    try:
        return DeltaTable(root)
    except TableNotFoundError as error:
        raise SinkRefused(f"{root} is no Delta table") from error


def _root(table: DeltaTable) -> Path:
    return Path(unquote(urlparse(table.table_uri).path))


def _sync(table: DeltaTable) -> None:
    """Bring the table's newest files and its log to the disk, which delta-rs leaves to chance."""
    root = _root(table)
    changed = {root, root / "_delta_log"}
    files = [root / unquote(name) for name in table.get_add_actions()["path"].to_pylist()]
    entries = sorted((root / "_delta_log").glob("*.json"))[-1:]
    for path in (*files, *entries):
        with suppress(FileNotFoundError):  # merged again in between
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            changed.add(path.parent)
    for directory in changed:
        sync_directory(directory)


def _drop_empty_jobs(root: Path) -> None:
    """Remove directories of jobs of which no file is left; a job that still runs keeps its own."""
    for job in root.glob("kcl-mld-*/job-*"):
        if (job.parent / job.name.replace("job-", "pending-")).exists():
            continue
        for folder, _, _ in os.walk(job, topdown=False):
            with suppress(OSError):  # it has files
                Path(folder).rmdir()


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("kcl-mld-spark", description="Look after a Delta table.")
    commands = parser.add_subparsers(dest="command", required=True)
    shown = commands.add_parser("history", help="its commits, the newest first")
    shown.add_argument("--limit", type=_at_least(1), default=20, metavar="N")
    merged = commands.add_parser("optimize", help="merge small files; workers go on meanwhile")
    merged.add_argument("--target-mib", type=_at_least(1), metavar="MIB", help="size of files")
    swept = commands.add_parser("vacuum", help="remove files that the table no longer has")
    swept.add_argument(
        "--retention-hours",
        type=_at_least(LEAST_RETENTION_H),
        metavar="H",
        help=f"a week unless the table says otherwise; at least {LEAST_RETENTION_H}",
    )
    swept.add_argument("--dry-run", action="store_true", help="only count them")
    for each in (shown, merged, swept):
        each.add_argument("table", metavar="TABLE", help="its directory")
    return parser.parse_args(argv)


def _at_least(least: int) -> Any:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} on")
        return int(text)

    return number
