"""Tables in pipes and on terminals of any width."""

import io
import sys

import click
import pytest
from rich.console import Console

from kcl_mld.cli.tables import Column, Section, TableRow, as_table, terminal

COLUMNS = [
    Column("shard"),
    Column("owner", least=6, rank=1),
    Column("lag", is_number=True),
    Column("parents", rank=9),
]
SECTIONS = [
    Section("one\x1b", (TableRow(("shardId-0", "a-very-long-owner", "1.0 s", "-"), "red"),)),
    Section("", (TableRow(("shardId-10", "b", "10.0 s", "[x]\n")),)),
]


def test_elsewhere_every_column_is_shown_in_full():
    lines = [click.unstyle(line) for line in as_table(COLUMNS, SECTIONS, None).splitlines()]
    assert lines == [
        "",
        "one\\x1b",
        "shard       owner                 lag  parents",
        "shardId-0   a-very-long-owner   1.0 s  -",
        "shard       owner                 lag  parents",
        "shardId-10  b                  10.0 s  [x]\\n",
    ]
    assert as_table(COLUMNS, [Section("", ())], None) == "shard  owner  lag  parents"


def shown(width):
    console = Console(file=io.StringIO(), width=width, markup=False, highlight=False)
    return as_table(COLUMNS, SECTIONS, console).splitlines()


@pytest.mark.parametrize(
    ("width", "owner", "left_out"),
    [
        (60, "a-very-long-owner", None),
        (38, "a-very-l…", None),
        (28, "a-very-…", "(no room for: parents)"),
        (20, None, "(no room for: owner, parents)"),
        (5, None, "(no room for: owner, parents)"),
    ],
)
def test_a_table_fits_the_terminal(width, owner, left_out):
    lines = shown(width)
    tables = [line for line in lines if not line.startswith("(no room")]
    body = "\n".join(lines)
    assert width < 18 or max(map(len, tables)) <= width
    assert (owner is None) == ("owner " not in tables[2])
    assert owner is None or f" {owner} " in body
    assert left_out is None or left_out in body
    assert width < 18 or "shardId-10" in body


def test_of_a_long_number_the_end_is_shown():
    console = Console(file=io.StringIO(), width=20, markup=False, highlight=False)
    columns = [Column("shard"), Column("checkpoint", least=8, keeps_end=True)]
    rows = (TableRow(("shard-1", "4" * 20 + "0123456789")), TableRow(("shard-2", "-")))
    lines = as_table(columns, [Section("", rows)], console).splitlines()
    assert [line.split()[-1] for line in lines] == ["checkpoint", "…0123456789", "-"]


def test_rich_is_for_terminals_that_have_it(monkeypatch):
    assert terminal() is None
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert terminal() is not None
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert terminal() is None
