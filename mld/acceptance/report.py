"""Writes the verdict of a run beside its recording."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kcl_mld.acceptance.rules.report_text import report_json, report_markdown

if TYPE_CHECKING:
    from pathlib import Path

    from kcl_mld.acceptance.options import Options
    from kcl_mld.acceptance.rules.judge import RunReport


def write_report(report: RunReport, options: Options, directory: Path) -> tuple[Path, Path]:
    """The JSON file and the page for people, without the account and without secrets."""
    as_json, as_page = directory / "report.json", directory / "report.md"
    as_json.write_text(report_json(report, options.account), encoding="utf-8")
    as_page.write_text(report_markdown(report, options.account), encoding="utf-8")
    return as_json, as_page
