"""What commands print: tables for people, JSON for programs.

Tables are drawn by rich, as wide as the terminal; without rich, or elsewhere, as plain columns.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.kernel.model.masking import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

_GAP = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        name: heading.
        is_number: aligned right.
        least: characters below which it is left out rather than cut; 0 = it is never cut.
        rank: where a terminal is too narrow, columns with the highest rank are left out first;
            0 = never.
        keeps_end: of a cell that is cut the end is shown, not the beginning.
    """

    name: str
    is_number: bool = False
    least: int = 0
    rank: int = 0
    keeps_end: bool = False


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: a text for each column, and the color of what matters most; None = none."""

    cells: tuple[str, ...]
    color: str | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """Rows under a title; "" = without one."""

    title: str
    rows: tuple[TableRow, ...]


def print_json(document: Mapping[str, Any]) -> None:
    """Print one object."""
    click.echo(json.dumps(document, indent=2))


def terminal() -> Console | None:
    """The terminal, if stdout is one and rich is installed (``kcl-mld[terminal]``)."""
    if not sys.stdout.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return None
    return Console(highlight=False, markup=False, emoji=False)


def as_table(
    columns: Sequence[Column], sections: Sequence[Section], console: Console | None
) -> str:
    """The table as text, control characters of cells escaped.

    Args:
        columns: of each section.
        sections: in order.
        console: where it is to fit; None = all columns in full, for pipes and without rich.
    """
    sections = [
        Section(
            printable(one.title),
            tuple(TableRow(tuple(map(printable, row.cells)), row.color) for row in one.rows),
        )
        for one in sections
    ]
    if console is None:
        return _plain(columns, sections)
    return _rich(columns, sections, console)


def _widths(columns: Sequence[Column], sections: Sequence[Section]) -> list[int]:
    """Of the longest cell of each column."""
    rows = [row.cells for one in sections for row in one.rows]
    return [
        max(len(column.name), *(len(cells[number]) for cells in rows)) if rows else len(column.name)
        for number, column in enumerate(columns)
    ]


def _plain(columns: Sequence[Column], sections: Sequence[Section]) -> str:
    widths = _widths(columns, sections)

    def line(cells: Sequence[str]) -> str:
        padded = [
            f"{cell:>{width}}" if column.is_number else f"{cell:<{width}}"
            for column, cell, width in zip(columns, cells, widths, strict=True)
        ]
        return (" " * _GAP).join(padded).rstrip()

    lines: list[str] = []
    for one in sections:
        if one.title:
            lines += ["", click.style(one.title, bold=True)]
        lines.append(line([column.name for column in columns]))
        lines += [click.style(line(row.cells), fg=row.color) for row in one.rows]
    return "\n".join(lines)


def _rich(columns: Sequence[Column], sections: Sequence[Section], console: Console) -> str:
    from rich.table import Table
    from rich.text import Text

    widths = _widths(columns, sections)
    kept = _kept(columns, widths, console.width)
    _shrink(columns, widths, kept, console.width)
    with console.capture() as shown:
        for one in sections:
            if one.title:
                console.print()
                console.print(Text(one.title, style="bold"), overflow="ellipsis", no_wrap=True)
            table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
            for number in kept:
                column = columns[number]
                table.add_column(
                    column.name,
                    justify="right" if column.is_number else "left",
                    no_wrap=True,
                    overflow="ellipsis",
                    width=widths[number],
                )
            for row in one.rows:
                cells = [_cut(columns[n], row.cells[n], widths[n]) for n in kept]
                table.add_row(*map(Text, cells), style=row.color)
            console.print(table)
    left_out = [column.name for number, column in enumerate(columns) if number not in kept]
    text = shown.get().rstrip("\n")
    return f"{text}\n(no room for: {', '.join(left_out)})" if left_out else text


def _cut(column: Column, cell: str, width: int) -> str:
    """Cut a text at its beginning if its end matters more; rich cuts the others."""
    return f"…{cell[len(cell) - width + 1 :]}" if column.keeps_end and len(cell) > width else cell


def _kept(columns: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Numbers of the columns for which a terminal has room."""
    kept = list(range(len(columns)))

    def needs() -> int:
        least = (min(widths[n], columns[n].least) or widths[n] for n in kept)
        return sum(least) + _GAP * (len(kept) - 1)

    while needs() > width:
        last = max(kept, key=lambda number: columns[number].rank)
        if columns[last].rank == 0:
            break
        kept.remove(last)
    return kept


def _shrink(columns: Sequence[Column], widths: list[int], kept: Sequence[int], width: int) -> None:
    """Cut the columns that may be cut, the widest first, until all fit."""
    soft = [number for number in kept if columns[number].least]
    excess = sum(widths[number] for number in kept) + _GAP * (len(kept) - 1) - width
    while excess > 0 and any(widths[n] > columns[n].least for n in soft):
        widest = max(soft, key=lambda number: widths[number] - columns[number].least)
        widths[widest] -= 1
        excess -= 1
