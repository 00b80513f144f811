"""What ``docs/compatibility.md`` promises of 1.x, list by list."""

from __future__ import annotations

import pytest

from tests import promise
from tests.markdown_pages import page


def written(name):
    return (promise.FOLDER / f"{name}.txt").read_text("utf-8").splitlines()


@pytest.mark.parametrize("name", promise.LISTS)
def test_what_1_x_keeps_is_there(name):
    said = promise.complaint(name, written(name), promise.lines_of(name))
    assert not said, said


@pytest.mark.parametrize("name", promise.LISTS)
def test_a_line_that_goes_and_one_that_comes_are_told_with_what_they_mean(name):
    now = promise.lines_of(name)
    assert len(now) > 10
    said = promise.complaint(name, now, now[1:])
    assert said.startswith(f"1.x keeps these {name}, and they are gone or changed: {now[0]}. ")
    assert "or it is version 2.0" in said
    assert "python -m tests.promise" not in said
    said = promise.complaint(name, now[:-1], now)
    assert said.startswith(f"These {name} are new: {now[-1]}. ")


def test_the_page_names_every_list_and_no_other():
    links = page("docs/compatibility.md").links
    beginning = "../tests/golden/promise/"
    named = {one.removeprefix(beginning) for one in links if one.startswith(beginning)}
    assert named == {f"{name}.txt" for name in promise.LISTS}
    assert named == {path.name for path in promise.FOLDER.iterdir()}


def test_exit_codes_of_the_page_on_supervising_are_those_of_the_list():
    rows = [row.split("|")[1].strip() for row in page("docs/supervising.md").tables]
    codes = {int(one) for row in rows for one in row.split(", ") if one.isdecimal()}
    listed = {
        int(line.partition(": ")[2].split()[0])
        for line in written("exit-codes")
        if not line.startswith("kcl-mld-spark")
    }
    assert {code for code in codes if 0 < code < 10} == listed
