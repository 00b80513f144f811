"""``python -m kcl_mld_protocol.conform child [--implementation NAME] [--json FILE] -- CMD…``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kcl_mld_protocol.conform.child import MAX_TIMEOUT_S, ChildKit

#: Characters of a wrong value in an error.
_SHOWN = 40


def show_stderr(chunk: bytes) -> None:
    """Pass on what a child writes to stderr, as it comes."""
    sys.stderr.write(chunk.decode("utf-8", "replace"))
    sys.stderr.flush()


def _timeout_s(text: str) -> float:
    """A number of seconds that can be waited for; argparse reports any other text."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= MAX_TIMEOUT_S:  # nan is neither
        raise argparse.ArgumentTypeError(
            f"{text[:_SHOWN]!r} is not a number of seconds above 0 and up to {MAX_TIMEOUT_S:g}"
        )
    return seconds


def main(argv: list[str] | None = None) -> int:
    """Run the child kit; the exit status shows whether an item failed."""
    parser = argparse.ArgumentParser(prog="python -m kcl_mld_protocol.conform")
    parser.add_argument("kit", choices=["child"])
    parser.add_argument("--implementation", choices=["generic", "kclpy"], default="generic")
    parser.add_argument("--timeout-s", type=_timeout_s, default=60.0)
    parser.add_argument("-v", "--verbose", action="store_true", help="show the child's stderr")
    parser.add_argument("--json", type=Path, help="also write the findings to this file")
    parser.add_argument("command", nargs="+", metavar="CMD")
    options = parser.parse_args(argv)
    if options.json is not None and not options.json.parent.is_dir():
        parser.error(f"--json: {options.json}: the folder does not exist")
    on_stderr = show_stderr if options.verbose else None
    kit = ChildKit(options.command, options.implementation, options.timeout_s, on_stderr=on_stderr)
    report = kit.run(lambda name: sys.stderr.write(f"{name}\n"))
    sys.stdout.write(report.text())
    if options.json is not None:
        options.json.write_text(report.json(), "utf-8")
    return report.exit_status


if __name__ == "__main__":
    sys.exit(main())
