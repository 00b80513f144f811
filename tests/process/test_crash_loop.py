"""Workers whose child fails at import, one after the other, beside one that works."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from kcl_mld.config.reserved_keys import FAILED_LIFE
from tests.process.daemon import Application, wait_until
from tests.process.test_explain import told

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.process


def begun(
    new_app: Callable[..., Application], **properties: str
) -> tuple[Application, tuple[str, ...]]:
    """A fleet of one worker that reads, and a program that fails at once."""
    app = new_app(shards=4, failoverTimeMillis="3000", **properties)
    program = app.folder / "gone.py"
    program.write_text("import gone\n")
    return app, (sys.executable, str(program))


@pytest.mark.parametrize("ids", [("x1", "x2"), ("x", "x")], ids=["new ids", "one id"])
def test_a_3x_leader_keeps_newcomers_waiting_after_a_life_that_failed(
    new_app: Callable[..., Application], ids: tuple[str, str]
) -> None:
    app, program = begun(new_app)
    first = app.start()
    wait_until(lambda: set(app.owners().values()) == {"w1"}, "w1 has all")
    for number, worker in enumerate(ids, 1):
        life = app.start(worker=worker, executable=program)
        assert life.ends() == 1, life.output
        failed = [key for key in app.everything() if key.startswith("kclMldFailedLife:")]
        assert len(failed) == number
    assert f"Worker {ids[1]} gets no leases until its reports show" in first.output
    assert f"the last of them was {ids[0]} after" in first.output
    app.put(20)
    wait_until(lambda: len(first.records()) == 20, "w1 reads on")
    assert first.stop() == 0, first.output


def test_explain_names_processes_that_were_killed_soon_after_their_start_under_new_ids(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(shards=4, failoverTimeMillis="3000")
    first = app.start()
    wait_until(lambda: set(app.owners().values()) == {"w1"}, "w1 has all")
    for number in (1, 2):
        worker = f"x{number}"
        life = app.start(worker=worker)
        wait_until(lambda: worker in app.owners().values(), "it has a lease")  # noqa: B023
        life.kill()
        wait_until(
            lambda: number == sum(key.startswith(FAILED_LIFE) for key in app.everything()),  # noqa: B023
            "the leader has noted its end",
        )
    found = told(app, "--once", failoverTimeMillis="3000")["fleet"]
    (loop,) = [one for one in found if one["verdict"] == "CRASH_LOOP"]
    assert "2 processes failed soon after their start, the last of them x2" in loop["cause"]
    assert "it stopped renewing its leases" in loop["cause"]
    assert first.stop() == 0, first.output


def test_in_a_2x_fleet_the_rows_say_it_and_no_other_item_is_written(
    new_app: Callable[..., Application],
) -> None:
    app, program = begun(
        new_app, clientVersionConfig="CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"
    )
    first = app.start()
    wait_until(lambda: set(app.owners().values()) == {"w1"}, "w1 has all")
    life = app.start(worker="x1", executable=program)
    assert life.ends() == 1, life.output
    marks = [item["kclMldNewcomer"] for item in app.items().values() if "kclMldNewcomer" in item]
    assert any('"worker_id":"x1"' in mark for mark in marks)
    second = app.start(worker="x2", executable=program)
    assert second.ends() == 1, second.output
    assert "failed soon after taking leases, the last one as worker x1" in second.output
    assert {item.get("entityType", "LEASE") for item in app.everything().values()} == {"LEASE"}
    app.put(20)
    wait_until(lambda: len(first.records()) == 20, "w1 reads on")
    assert first.stop() == 0, first.output
