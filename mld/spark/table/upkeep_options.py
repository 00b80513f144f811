"""Arguments of ``kcl-mld-spark optimize``, ``vacuum`` and the like; needs no other package."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kcl_mld.kernel.model.masking import brief

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: Below this, readers of an older version lose its files under their hands, in hours.
LEAST_RETENTION_H = 24
#: What the log does not name may be of a commit that is still to come, for so many hours.
UNNAMED_H = 168
#: Of every number: what is beyond it is nothing that delta-rs could count with.
_MOST = 2**31 - 1


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """The command and its options; ends the process after ``--help`` and for what is wrong."""
    parser = argparse.ArgumentParser("kcl-mld-spark", description="Look after a Delta table.")
    commands = parser.add_subparsers(dest="command", required=True)
    shown = commands.add_parser("history", help="its commits, the newest first")
    shown.add_argument(
        "--limit", type=_at_least(1), default=20, metavar="N", help="how many; 20 unless given"
    )
    merged = commands.add_parser("optimize", help="merge small files; workers go on meanwhile")
    merged.add_argument("--target-mib", type=_at_least(1), metavar="MIB", help="size of files")
    swept = commands.add_parser("vacuum", help="remove files that the table no longer has")
    swept.add_argument(
        "--retention-hours",
        type=_at_least(LEAST_RETENTION_H),
        metavar="H",
        help=f"how long files stay that are not of the table any more: a week unless the table says"
        f" otherwise, at least {LEAST_RETENTION_H}; files that no commit names stay for {UNNAMED_H}",
    )
    swept.add_argument("--dry-run", action="store_true", help="only count them")
    begun = commands.add_parser(
        "new-epoch",
        help="after a RESTORE, with all workers stopped: marks for the rows that are left",
    )
    begun.add_argument("--application", metavar="NAME", help="if the table has several")
    begun.add_argument(
        "--version",
        type=_at_least(0),
        metavar="V",
        help="whose rows it has, unless the log says so",
    )
    for each in (shown, merged, swept, begun):
        each.add_argument("table", metavar="TABLE", help="its directory, or s3://bucket/prefix")
    begun.add_argument("word", metavar="WORD", help="the new spark.sink.epoch")
    return parser.parse_args(argv)


def _at_least(least: int) -> Any:
    def number(text: str) -> int:
        is_number = text.isdecimal() and len(text) <= len(str(_MOST))
        if not is_number or not least <= int(text) <= _MOST:
            raise argparse.ArgumentTypeError(
                f"{brief(text)!r} is not a whole number from {least} to {_MOST}"
            )
        return int(text)

    return number
