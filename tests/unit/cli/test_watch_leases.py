"""``kcl-mld leases watch`` over looks that are made up."""

import json
import os
import signal
import sys
import threading
from dataclasses import replace

import pytest

import kcl_mld.cli.watch_leases
from kcl_mld.cli import dispatch
from kcl_mld.errors import Throttled
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
from tests.fakes.fleet_looks import BEGINS_S, Looks
from tests.fakes.lease_rows import ORDERS
from tests.fakes.lease_world import lease

FIRST = lease(0, lease_owner="a")
OTHER = lease(1, lease_owner="b", checkpoint=ExtendedSequenceNumber("4" * 56))
MOVED = replace(FIRST, lease_owner="b")


@pytest.fixture
def opened(monkeypatch):
    def open_looks(*steps, **fields):
        looks = Looks(*steps, **{"count": 5, **fields})
        monkeypatch.setattr(kcl_mld.cli.watch_leases, "open_fleet", looks.open)
        return looks

    return open_looks


def watched(properties, *words):
    return ["leases", "watch", properties, "--every", "0.1", *words]


def test_elsewhere_each_event_is_a_line(properties, opened, capsys):
    looks = opened((FIRST, OTHER), (MOVED, OTHER), living=("a", "b"))
    assert dispatch(watched(properties)) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) == {
        "time_s": BEGINS_S + 1,
        "event": "LEASE_TAKEN",
        "subject": FIRST.lease_key,
        "before": "a",
        "after": "b",
    }
    assert looks.fresh[:3] == [True, False, False]
    assert looks.tips is False


@pytest.mark.parametrize(("worker", "count"), [("a", 1), ("b", 1), ("c", 0)])
def test_only_events_of_what_is_asked_for(properties, opened, capsys, worker, count):
    opened((FIRST, OTHER), (MOVED, OTHER), living=("a", "b"))
    assert dispatch(watched(properties, "--worker", worker, "--tip")) == 0
    assert len(capsys.readouterr().out.splitlines()) == count


def test_a_look_that_fails_is_repeated_but_not_the_first(properties, opened, capsys):
    opened((FIRST,), Throttled("Scan", "ThrottlingException"), (MOVED,), living=("a", "b"))
    assert dispatch(watched(properties)) == 0
    shown = capsys.readouterr()
    assert "The last look failed: Scan" in shown.err
    assert "LEASE_TAKEN" in shown.out
    opened(Throttled("Scan", "ThrottlingException"))
    assert dispatch(watched(properties)) == 1
    opened()
    assert dispatch(watched(properties)) == 4


def test_ctrl_c_ends_it_well(properties, opened, monkeypatch):
    looks = opened((FIRST,), count=2)
    assert dispatch(watched(properties)) == 0
    assert len(looks.fresh) == 2


def test_it_ends_after_the_time_that_it_is_given(properties, opened):
    looks = opened((FIRST,), count=None)
    assert dispatch(watched(properties, "--for", "0.3")) == 0
    assert looks.fresh


def test_a_table_takes_a_terminal(properties, opened, capsys):
    opened((FIRST,))
    assert dispatch(watched(properties, "-o", "table")) == 2
    assert "needs a terminal" in capsys.readouterr().err


@pytest.fixture(params=[True, False], ids=["rich", "plain"])
def on_terminal(request, monkeypatch):
    """To be called in the test: pytest has another stdout for its fixtures."""

    def begin():
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "80")
        monkeypatch.setenv("LINES", "20")
        if not request.param:
            monkeypatch.setitem(sys.modules, "rich.console", None)

    return begin


def screens(out):
    """The lines of each screen, without escape sequences."""
    assert out.startswith("\x1b[?1049h")
    assert out.endswith("\x1b[?1049l")
    found = []
    for screen in out.split("\x1b[H")[1:]:
        lines = screen.split("\x1b[J")[0].splitlines()
        found.append([kcl_mld.cli.watch_leases.click.unstyle(line).rstrip() for line in lines])
    return found


def test_on_a_terminal_it_is_drawn_in_place_and_what_moved_is_marked(
    properties, opened, capsys, on_terminal
):
    on_terminal()
    opened((FIRST, OTHER), (MOVED, OTHER), living=("a", "b"))
    assert dispatch(watched(properties)) == 0
    before, after, *later = screens(capsys.readouterr().out)
    assert not any(line.startswith("*") for line in before)
    (marked,) = [line.split() for line in after if line.startswith("*")]
    assert marked[:3] == ["*", FIRST.shard_id, "b"]
    assert after[-1].split()[1:] == ["LEASE_TAKEN", FIRST.lease_key, "a", ">", "b"]
    assert later[-1][-1] == after[-1]  # it stays
    assert not any(line.startswith("*") for line in later[-1])
    assert max(len(line) for line in after) <= 80


def test_shards_and_owners_have_room_on_a_narrow_screen(
    properties, opened, capsys, on_terminal, monkeypatch
):
    on_terminal()
    monkeypatch.setenv("COLUMNS", "60")
    opened((FIRST, OTHER), (MOVED, OTHER), living=("a", "b"))
    assert dispatch(watched(properties)) == 0
    _before, after, *_ = screens(capsys.readouterr().out)
    (marked,) = [line.split() for line in after if line.startswith("*")]
    assert marked[:3] == ["*", FIRST.shard_id, "b"]


def test_of_many_streams_the_stream_stays_on_a_narrow_screen(
    properties, opened, capsys, on_terminal, monkeypatch
):
    on_terminal()
    monkeypatch.setenv("COLUMNS", "44")
    rows = tuple(
        lease(0, lease_key=f"{one}:{FIRST.shard_id}", stream_identifier=one, lease_owner="a")
        for one in (ORDERS.identifier, "123456789012:payments:1700000000")
    )
    opened(rows, rows, living="a")
    assert dispatch(watched(properties)) == 0
    shown = [line.split()[:2] for line in screens(capsys.readouterr().out)[0]]
    streams = [words[0] for words in shown if words[1:] == [FIRST.shard_id]]
    assert [one[:6] for one in streams] == ["orders", "paymen"]


def test_a_screen_has_what_matters_most_first(properties, opened, capsys, on_terminal):
    on_terminal()
    rows = tuple(lease(number, lease_owner="a") for number in range(40))
    silent = lease(40, lease_owner="dead")
    opened((*rows, silent), Throttled("Scan", "ThrottlingException"), (*rows, silent), living="a")
    assert dispatch(watched(properties, "-o", "table")) == 0
    shown = screens(capsys.readouterr().out)
    assert max(len(screen) for screen in shown) < int(os.environ["LINES"])
    assert shown[1][0].startswith("The last look failed: Scan")
    first = next(line.strip() for line in shown[-1] if "shardId-" in line)
    assert first.startswith(silent.shard_id)
    assert any(line.startswith("… and ") for line in shown[-1])


def test_after_sigterm_the_terminal_is_as_it_was(properties, opened, capsys, on_terminal):
    on_terminal()
    opened((FIRST,), count=None)
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(SystemExit) as ended:
        dispatch(["leases", "watch", properties, "--every", "0.1"])
    timer.join()
    assert ended.value.code == 143
    assert screens(capsys.readouterr().out)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_screen_without_leases(properties, opened, capsys, on_terminal):
    on_terminal()
    opened(())
    assert dispatch(watched(properties)) == 0
    assert "app: 0 leases" in screens(capsys.readouterr().out)[0]
