"""``kcl-mld leases reset``, ``release``, ``pause`` and ``resume`` beside living workers and at rest."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
from typing import TYPE_CHECKING, Any

import pytest

from tests.process.daemon import CHECKPOINT, STATUS, Application, heard, shard_id, wait_until
from tests.process.test_explain import (
    at,
    numbers,
    owned_by,
    properties_of,
    renewed,
    row,
    told,
    typed,
    verdicts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.process

ALL_READ: dict[str, Any] = {"processRecords": [[CHECKPOINT, STATUS]]}
#: Longer than a worker on a busy machine leaves a lease alone: a command writes a row that rests.
FAST = {"failoverTimeMillis": "4000"}


def steered(app: Application, *words: str, code: int = 0) -> dict[str, Any]:
    """What a command that changes leases prints as JSON."""
    done = typed(app, "leases", *words, "-o", "json", "-p", str(properties_of(app, **FAST)))
    assert done.returncode == code, (done.stderr, done.stdout)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def only(answer: dict[str, Any]) -> dict[str, Any]:
    """The only lease of a document."""
    (lease,) = answer["leases"]
    assert isinstance(lease, dict)
    return lease


@pytest.mark.parametrize("says", [None, "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1"])
def test_a_living_worker_moves_its_checkpoint_when_it_is_asked(
    new_app: Callable[..., Application], says: str | None
) -> None:
    app = new_app(1)
    app.put(10)
    more = {} if says is None else {"clientVersionConfig": says}
    run = app.start(ALL_READ, **FAST, **more)
    run.wait_for_actions("checkpoint", 1)
    wait_until(lambda: app.items()[shard_id(0)].get("kclMldHolder") == "w1", "it says who holds it")
    known = numbers(app, 0)
    dry = only(steered(app, "reset", shard_id(0), "--at-sequence-number", known[4]))
    assert (dry["way"], dry["done"], dry["owner"]) == ("ask", False, "w1")
    assert dry["after"] == {"checkpoint": known[3], "sub_sequence_number": 0}
    assert app.items()[shard_id(0)]["checkpoint"] == known[9]
    words = ("reset", shard_id(0), "--at-sequence-number", known[4], "--execute")
    done = steered(app, *words, "--reason", "a bug in the program")
    assert only(done)["done"]
    wait_until(lambda: len(run.records()) == 16, "six records come again")
    assert [one["sequenceNumber"] for one in run.records()[10:]] == known[4:]
    item = app.items()[shard_id(0)]
    assert item["leaseOwner"] == "w1"
    assert "kclMldRequest" not in item
    note = json.loads(item["kclMldSteered"])
    assert (note["reason"], note["before"], note["request_id"]) == (
        "a bug in the program",
        known[9],
        done["request"],
    )
    (asked,) = [said for said in map(heard, run.children()) if "shutdownRequested" in said]
    assert asked[asked.index("shutdownRequested") :][:2] == ["shutdownRequested", "leaseLost"]
    assert run.stop() == 0


def test_a_row_at_rest_is_written_and_its_next_owner_begins_there(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.put(40)
    first = numbers(app, 0)
    app.create_table()
    row(
        app,
        0,
        **owned_by("java"),
        **at(first[-1]),
        checkpointOwner={"S": "older"},
        pendingCheckpoint={"S": first[-1]},
        pendingCheckpointSubSequenceNumber={"N": "0"},
        ownerSwitchesSinceCheckpoint={"N": "3"},
        ofSomebodyElse={"S": "kept"},
    )
    row(app, 1, **at(numbers(app, 1)[-1]))
    # A record before its first one does not exist.
    assert only(steered(app, "reset", shard_id(0), "--at-sequence-number", first[0]))["after"] == {
        "checkpoint": "TRIM_HORIZON",
        "sub_sequence_number": 0,
    }
    after = ("reset", shard_id(0), "--after-sequence-number", first[1], "--execute")
    assert only(steered(app, *after))["done"]
    item = app.items()[shard_id(0)]
    assert (item["checkpoint"], item["leaseCounter"]) == (first[1], 8)
    assert item["ownerSwitchesSinceCheckpoint"] == 0
    assert item["ofSomebodyElse"] == "kept"
    for gone in ("leaseOwner", "checkpointOwner", "pendingCheckpoint"):
        assert gone not in item
    # The same again has nothing to do.
    again = only(steered(app, *after))
    assert (again["way"], again["done"]) == ("none", False)
    everything = steered(app, "reset", "--all", "--to-latest", "--execute")
    assert [one["done"] for one in everything["leases"]] == [True, False]
    assert app.items()[shard_id(0)]["checkpoint"] == first[-1]
    assert steered(app, "reset", "--all", "--rewind", "PT1H", "--execute")["leases"][0]["done"]
    assert app.items()[shard_id(0)]["checkpoint"] == "TRIM_HORIZON"
    run = app.start(ALL_READ, **FAST)
    wait_until(lambda: len(run.records()) == 40, "all records come again")
    assert run.stop() == 0


def test_a_lease_that_another_program_renews_is_left_alone(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.create_table()
    row(app, 0, **owned_by("java"))
    row(app, 1, **owned_by("w1"), kclMldHolder={"S": "w1"})
    with renewed(app, 0, 1):
        for verb in (("reset", "--to-latest"), ("release",), ("pause",)):
            answer = steered(app, verb[0], shard_id(0), *verb[1:], "--execute", code=5)
            assert only(answer)["way"] == "refused"
            assert "java renews it and is not a kcl-mld worker" in only(answer)["why"]
        # It could get the lease that is paused.
        answer = steered(app, "pause", shard_id(1), code=5)
        assert "java is not a kcl-mld worker" in only(answer)["why"]
    assert "kclMldRequest" not in app.items()[shard_id(1)]


def test_a_worker_that_does_not_answer_is_asked_no_longer(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(1)
    app.create_table()
    row(app, 0, **owned_by("w1"), kclMldHolder={"S": "w1"})
    with renewed(app, 0):
        done = typed(
            app,
            "leases",
            "release",
            shard_id(0),
            "--execute",
            "-p",
            str(properties_of(app, **FAST, gracefulLeaseHandoffTimeoutMillis="500")),
        )
    assert done.returncode == 5
    assert "w1 did not do it in time, so the request was withdrawn" in done.stdout
    assert "kclMldRequest" not in app.items()[shard_id(0)]


def begun(app: Application, *words: str, **how: Any) -> subprocess.Popen[str]:
    """A command that has asked, by the row of the first shard."""
    command = subprocess.Popen(
        [sys.executable, "-m", "kcl_mld", "leases", *words, "-p", str(properties_of(app, **FAST))],
        env=app.aws.environment_for_child(),
        text=True,
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | how,
    )
    wait_until(lambda: "kclMldRequest" in app.items()[shard_id(0)], "the owner is asked")
    return command


def test_what_was_asked_of_a_worker_that_stands_still_is_withdrawn_by_ctrl_c(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(1)
    app.put(5)
    # It may hear the request before it is stopped: its child gives it time not to have done it.
    slow = {**ALL_READ, "shutdownRequested": [[["sleep", 600], STATUS]]}
    run = app.start(slow, **FAST, gracefulLeaseHandoffTimeoutMillis="20000")
    run.wait_for_actions("checkpoint", 1)
    wait_until(lambda: app.items()[shard_id(0)].get("kclMldHolder") == "w1", "it says who holds it")
    position = app.items()[shard_id(0)]["checkpoint"]
    command = begun(app, "reset", shard_id(0), "--to-trim-horizon", "--execute")
    run.signal(signal.SIGSTOP)
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=60)
    assert command.returncode == 130, (out, err)
    (lease,) = json.loads(out)["leases"]
    assert not lease["done"]
    assert lease["why"] == "the command was interrupted, and the request was withdrawn"
    assert "still asked" not in err
    assert "kclMldRequest" not in app.items()[shard_id(0)]
    run.signal(signal.SIGCONT)
    counter = app.items()[shard_id(0)]["leaseCounter"]
    wait_until(lambda: app.items()[shard_id(0)]["leaseCounter"] > counter + 1, "it is renewed")
    app.put(5)
    wait_until(lambda: len(run.records()) == 10, "it goes on")
    assert [one["sequenceNumber"] for one in run.records()] == numbers(app, 0)
    item = app.items()[shard_id(0)]
    assert item["checkpoint"] >= position
    assert "kclMldSteered" not in item


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_withdraws_what_it_asked(
    new_app: Callable[..., Application], number: signal.Signals
) -> None:
    app = new_app(1)
    app.create_table()
    row(app, 0, **owned_by("w1"), kclMldHolder={"S": "w1"})
    with renewed(app, 0):
        if number is signal.SIGHUP:
            ours, terminal = os.openpty()  # of its own session: to close it hangs up
            command = begun(
                app,
                *("release", shard_id(0), "--execute"),
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
            os.close(terminal)
            os.close(ours)
        else:
            command = begun(app, "release", shard_id(0), "--execute")
            command.send_signal(number)
        command.communicate(timeout=60)
        assert command.returncode == 128 + number
        assert "kclMldRequest" not in app.items()[shard_id(0)]


def test_what_a_killed_command_has_asked_is_shown_and_can_be_taken_back(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(1)
    app.create_table()
    row(app, 0, **owned_by("w1"), kclMldHolder={"S": "w1"})
    file = str(properties_of(app, **FAST))
    with renewed(app, 0):
        command = begun(app, "release", shard_id(0), "--reason", "a try", "--execute")
        command.kill()
        command.communicate()
        asked = json.loads(app.items()[shard_id(0)]["kclMldRequest"])
        said = f"{shard_id(0)}: w1 is asked to release it, by {asked['by']}, for another "
        for words in (("leases", "list", "--once", "-p", file), ("explain", "--once", "-p", file)):
            assert said in typed(app, *words).stdout
        described = typed(app, "leases", "describe", "--once", "-p", file, shard_id(0)).stdout
        assert f"asked       w1: release, by {asked['by']}, until 20" in described
        assert "kcl-mld leases withdraw" in typed(app, "explain", "--once", "-p", file).stdout
        refused = typed(app, "leases", "release", shard_id(0), "--execute", "-p", file)
        assert "another request waits for its holder" in refused.stdout
        dry = only(steered(app, "withdraw", shard_id(0)))
        assert (dry["way"], dry["done"]) == ("write", False)
        assert dry["notes"][0].startswith("w1 is asked to release it")
        assert json.loads(app.items()[shard_id(0)]["kclMldRequest"]) == asked
        assert only(steered(app, "withdraw", "--all", "--execute"))["done"]
        item = app.items()[shard_id(0)]
        assert item["leaseOwner"] == "w1"
        assert not {"kclMldRequest", "kclMldSteered"} & item.keys()
        assert only(steered(app, "withdraw", shard_id(0)))["way"] == "none"


def test_a_second_ctrl_c_names_what_is_still_asked(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    app.create_table()
    row(app, 0, **owned_by("w1"), kclMldHolder={"S": "w1"})
    with renewed(app, 0):
        command = begun(app, "release", shard_id(0), "--execute")
        rule = {"service": "dynamodb", "contains": "REMOVE kclMldRequest", "delay_s": 60}
        before = app.aws.control(faults=[rule])["faults"].get("dynamodb.UpdateItem", 0)

        def is_withdrawing() -> bool:
            return bool(app.aws.control()["faults"].get("dynamodb.UpdateItem", 0) > before)

        try:
            command.send_signal(signal.SIGINT)
            wait_until(is_withdrawing, "it withdraws, and the table does not answer")
            command.send_signal(signal.SIGINT)
            out, err = command.communicate(timeout=60)
        finally:
            app.aws.control(faults=[])
    assert command.returncode == 130
    file = properties_of(app, **FAST)
    assert f"{shard_id(0)}: w1 is still asked to release it, until 20" in err
    assert f"kcl-mld leases withdraw {file} {shard_id(0)} --execute" in err
    assert json.loads(out)["leases"][0]["why"].startswith("the command ended before")


def test_pause_release_and_resume(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    app.put(5)
    run = app.start(ALL_READ, **FAST)
    run.wait_for_actions("checkpoint", 1)
    wait_until(lambda: app.items()[shard_id(0)].get("kclMldHolder") == "w1", "it says who holds it")
    paused = only(steered(app, "pause", shard_id(0), "--for", "PT10M", "--execute"))
    assert paused["done"]
    assert paused["retention_left_s"] == pytest.approx(24 * 3600 - 600, abs=120)
    app.put(5)
    assert verdicts(told(app, **FAST))[shard_id(0)] == ("PAUSED", "info")
    counter = app.items()[shard_id(0)]["leaseCounter"]
    wait_until(lambda: app.items()[shard_id(0)]["leaseCounter"] > counter + 1, "it is renewed")
    assert len(run.records()) == 5
    # Another owner keeps the pause.
    assert only(steered(app, "release", shard_id(0), "--execute"))["done"]
    wait_until(lambda: app.owners()[shard_id(0)] == "w1", "it is owned again")
    assert len(run.records()) == 5
    assert only(steered(app, "resume", shard_id(0), "--execute"))["done"]
    wait_until(lambda: len(run.records()) == 10, "what came meanwhile is read")
    assert [one["sequenceNumber"] for one in run.records()] == numbers(app, 0)
    assert only(steered(app, "resume", shard_id(0)))["way"] == "none"
    assert run.stop() == 0


def test_a_child_that_hangs_is_ended_for_a_reset(new_app: Callable[..., Application]) -> None:
    app = new_app(1)
    app.put(5)
    stuck = {"processRecords": [[CHECKPOINT, STATUS], [["sleep", 600], STATUS]]}
    run = app.start(stuck, **FAST, gracefulLeaseHandoffTimeoutMillis="1000")
    run.wait_for_actions("checkpoint", 1)
    app.put(5)
    wait_until(lambda: len(run.records()) == 10, "the child has what it hangs on")
    done = steered(app, "reset", shard_id(0), "--to-latest", "--execute")
    assert only(done)["done"]
    assert app.items()[shard_id(0)]["checkpoint"] == numbers(app, 0)[-1]
    wait_until(lambda: len(run.child_of(0)) and run.stop() == 0, "it stops in order")


def test_a_copy_is_for_the_stream_that_it_is_of(
    new_app: Callable[..., Application], tmp_path: Any
) -> None:
    app = new_app(2)
    app.put(40)
    app.create_table()
    row(app, 0, **at(numbers(app, 0)[3]))
    row(app, 1, **at("LATEST"))
    done = typed(app, "leases", "export", str(properties_of(app, **FAST)))
    assert done.returncode == 0, done.stderr
    copy = tmp_path / "copy.json"
    copy.write_text(done.stdout)
    assert only(steered(app, "reset", shard_id(0), "--to-trim-horizon", "--execute"))["done"]
    back = ("reset", shard_id(0), "--from", str(copy), "--execute")
    assert only(steered(app, *back))["done"]
    assert app.items()[shard_id(0)]["checkpoint"] == numbers(app, 0)[3]
    done = typed(
        app, "leases", "reset", "--all", "--from", str(copy), "-p", str(properties_of(app, **FAST))
    )
    assert done.returncode == 5
    assert "was at LATEST" in done.stderr
    document = json.loads(copy.read_text())
    document["streams"][app.name]["created_s"] -= 1
    copy.write_text(json.dumps(document))
    done = typed(app, "leases", *back, "-p", str(properties_of(app, **FAST)))
    assert done.returncode == 5
    assert "of another stream, or of an earlier one" in done.stderr


def test_a_rewind_to_before_a_split_takes_the_lineage_along(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.put(40)
    app.split(0)  # 2 and 3
    app.put(40)
    run = app.start(**FAST)
    wait_until(lambda: len(run.records()) == 80, "all is read")
    wait_until(lambda: app.items()[shard_id(0)]["checkpoint"] == "SHARD_END", "it is finished")
    known = numbers(app, 0)
    words = ("reset", shard_id(0), "--after-sequence-number", known[4])
    with_owner = steered(app, *words, "--execute", code=5)
    assert [one["way"] for one in with_owner["leases"]] == ["refused"] * 3
    assert "w1 renews it: stop all workers" in with_owner["leases"][0]["why"]
    assert run.stop() == 0
    # One that was cleaned up is made again.
    app.dynamodb.delete_item(TableName=app.name, Key={"leaseKey": {"S": shard_id(0)}})
    before = app.items()
    done = steered(app, *words, "--execute")
    assert [(one["lease"], one["done"]) for one in done["leases"]] == [
        (shard_id(0), True),
        (shard_id(2), True),
        (shard_id(3), True),
    ]
    items = app.items()
    assert items[shard_id(0)]["checkpoint"] == known[4]
    assert {items[shard_id(n)]["checkpoint"] for n in (2, 3)} == {"TRIM_HORIZON"}
    assert items[shard_id(1)] == before[shard_id(1)]
    again = app.start(**FAST)
    missing = 80 - 5 - len(numbers(app, 1))
    wait_until(lambda: len(again.records()) == missing, "the lineage is read again")
    read = [one["sequenceNumber"] for one in again.records()]
    of_parent = len(known) - 5
    assert read[:of_parent] == known[5:]
    assert sorted(read[of_parent:]) == sorted([*numbers(app, 2), *numbers(app, 3)])
    assert again.stop() == 0


def test_of_a_merge_one_parent_is_read_again_and_the_other_one_stays_finished(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.put(40)
    app.merge(0, 1)  # 2
    app.put(10)
    parents = {"parentShardId": {"SS": [shard_id(0), shard_id(1)]}}
    app.create_table()
    row(app, 0, **at("SHARD_END"), childShardIds={"SS": [shard_id(2)]})
    row(app, 2, **parents, **at(numbers(app, 2)[-1]))
    done = steered(app, "reset", shard_id(0), "--to-trim-horizon", "--execute")
    assert [one["after"]["checkpoint"] for one in done["leases"]] == [
        "TRIM_HORIZON",
        "SHARD_END",
        "TRIM_HORIZON",
    ]
    run = app.start(**FAST)
    due = [*numbers(app, 0), *numbers(app, 2)]
    wait_until(lambda: len(run.records()) >= len(due), "they are read again")
    assert [one["sequenceNumber"] for one in run.records()] == due
    assert run.stop() == 0


def test_no_row_is_made_of_a_shard_whose_parent_is_not_finished(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(1)
    app.put(10)
    app.split(0)  # 1 and 2
    app.create_table()
    row(app, 0, **at(numbers(app, 0)[3]))
    before = app.items()
    for words in (["--to-latest"], ["--to-trim-horizon"]):
        step = only(steered(app, "reset", shard_id(1), *words, "--execute", code=5))
        assert step["way"] == "refused"
        assert "no worker has begun it" in step["why"]
    done = only(steered(app, "reset", shard_id(0), "--to-trim-horizon", "--execute"))
    assert done["done"]
    assert set(app.items()) == set(before)


def test_a_row_that_was_deleted_under_its_reader_is_made_again_by_the_command_in_its_log(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.put(40)
    run = app.start(ALL_READ, **FAST, initialPositionInStream="LATEST")
    wait_until(lambda: len(app.items()) == 2, "it has rows")
    wait_until(lambda: set(app.owners().values()) == {"w1"}, "it owns them")
    reset = steered(app, "reset", "--all", "--to-trim-horizon", "--execute")
    assert all(one["done"] for one in reset["leases"])
    wait_until(lambda: len(run.records()) == 40, "all is read")
    known = numbers(app, 0)
    wait_until(lambda: app.items()[shard_id(0)]["checkpoint"] == known[-1], "it is checkpointed")
    app.dynamodb.delete_item(TableName=app.name, Key={"leaseKey": {"S": shard_id(0)}})
    place = f"--after-sequence-number {known[-1]}/0"
    run.wait_for_log(f"kcl-mld leases reset FILE {shard_id(0)} {place} --create --execute")
    app.put(20)
    done = only(steered(app, "reset", shard_id(0), *place.split(), "--create", "--execute"))
    assert (done["way"], done["done"]) == ("together", True)
    wait_until(lambda: len(run.records()) == 60, "it goes on where it stood")
    assert sorted(one["sequenceNumber"] for one in run.records()) == sorted(
        [*numbers(app, 0), *numbers(app, 1)]
    )
    assert run.stop() == 0


def test_a_row_that_somebody_made_meanwhile_is_not_overwritten(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(2)
    app.put(10)
    app.create_table()
    row(app, 1)
    words = ("leases", "reset", shard_id(0), "--to-trim-horizon", "--create", "--execute")
    rule = {"service": "dynamodb", "operation": "TransactWriteItems", "delay_s": 3}
    app.aws.control(faults=[rule | {"contains": app.name}])
    try:
        before = app.aws.control()["faults"].get("dynamodb.TransactWriteItems", 0)
        command = subprocess.Popen(
            [sys.executable, "-m", "kcl_mld", *words, "-p", str(properties_of(app, **FAST))],
            env=app.aws.environment_for_child(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        name = "dynamodb.TransactWriteItems"
        wait_until(lambda: app.aws.control()["faults"].get(name, 0) > before, "it is on its way")
        row(app, 0, **at(numbers(app, 0)[2]))
        out, err = command.communicate(timeout=60)
    finally:
        app.aws.control(faults=[])
    assert command.returncode == 5, err
    assert f"written meanwhile were {shard_id(0)}" in out
    assert app.items()[shard_id(0)]["checkpoint"] == numbers(app, 0)[2]


def test_the_parent_of_a_row_that_was_written_meanwhile_stays(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(1)
    app.put(10)
    app.split(0)  # 1 and 2
    app.create_table()
    parents = {"parentShardId": {"SS": [shard_id(0)]}}
    row(app, 0, **at("SHARD_END"), childShardIds={"SS": [shard_id(1), shard_id(2)]})
    row(app, 1, **parents, **at(numbers(app, 0)[-1]))
    row(app, 2, **parents, **owned_by("java"))
    before = app.items()
    with renewed(app, 2):
        answer = steered(app, "reset", shard_id(0), "--to-trim-horizon", "--execute", code=5)
    assert [one["way"] for one in answer["leases"]] == ["together", "together", "refused"]
    after = app.items()
    del before[shard_id(2)], after[shard_id(2)]
    assert after == before


def test_only_the_row_of_a_shard_past_retention_is_deleted(
    new_app: Callable[..., Application],
) -> None:
    app = new_app(1)
    app.split(0)  # 1 and 2
    app.create_table()
    row(app, 0, **at("SHARD_END"))
    row(app, 1)
    item = app.dynamodb.get_item(TableName=app.name, Key={"leaseKey": {"S": shard_id(1)}})["Item"]
    old = {**item, "leaseKey": {"S": "shardId-000000000000-"}}
    app.dynamodb.put_item(TableName=app.name, Item=old)
    answer = steered(app, "delete", shard_id(0), shard_id(1), "--execute", code=5)
    assert {one["why"] for one in answer["leases"]} == {
        "the stream still has its shard, or never had it"
    }
    said = typed(app, "leases", "delete", str(properties_of(app, **FAST)), shard_id(0), "--execute")
    assert said.stdout.endswith("Nothing was written.\n")  # --execute would not do it, either
    done = only(steered(app, "delete", "shardId-000000000000-", "--execute"))
    assert done["done"]
    assert set(app.items()) == {shard_id(0), shard_id(1)}


def test_the_checkpoints_of_a_spark_sink_go_where_its_marks_stand(
    new_app: Callable[..., Application], tmp_path: Any
) -> None:
    app = new_app(2)
    app.put(40)
    first, second = numbers(app, 0), numbers(app, 1)
    app.create_table()
    row(app, 0, **at(first[-1]))
    row(app, 1, **at(second[-1]), **owned_by("w1"), kclMldHolder={"S": "w1"})
    marks = tmp_path / "marks"
    marks.write_text(
        f"{app.name} {shard_id(0)} stands at {first[2]}\n{app.name} {shard_id(1)} stands at "
        f"{second[3]}/2\n1. Set spark.sink.epoch = 2.\n"
    )
    file = str(properties_of(app, **FAST, executableName="kcl-mld-spark app.py"))
    words = ("leases", "reset", "--all", "--from", str(marks), "--execute", "-p", file)
    with renewed(app, 1):
        done = typed(app, *words)
    assert done.returncode == 5
    assert "w1 renews it: stop all workers" in done.stdout
    done = typed(app, *words)
    assert done.returncode == 0, done.stderr
    items = app.items()
    assert items[shard_id(0)]["checkpoint"] == first[2]
    assert items[shard_id(1)]["checkpoint"] == second[3]
    assert items[shard_id(1)]["checkpointSubSequenceNumber"] == 2
