"""The kit for children passes a good child and catches bad ones."""

from __future__ import annotations

import os
import pathlib
import sys
import textwrap

import pytest

import kcl_mld_protocol
from kcl_mld_protocol.conform import child
from kcl_mld_protocol.conform.child import ChildKit
from kcl_mld_protocol.conform.report import Verdict

pytestmark = pytest.mark.process

ROOT = str(pathlib.Path(kcl_mld_protocol.__file__).parent.parent)

GOOD = """
from kcl_mld_protocol import child

class Careful(child.RecordProcessor):
    def process_records(self, batch):
        self.store(batch.checkpointer)

    def shutdown_requested(self, notice):
        self.store(notice.checkpointer)

    def store(self, checkpointer):
        try:
            checkpointer.checkpoint()
        except child.CheckpointError as error:
            print("refused", error.value)

child.run(Careful())
"""

#: A child by hand; ``answer`` is filled in by each test.
BY_HAND = """
import json, os, sys, time
def say(text): os.write(1, text.encode())
def status(action): say(json.dumps({{"action": "status", "responseFor": action}}) + "\\n")
{before}
for line in sys.stdin:
    message = json.loads(line); action = message["action"]
    {answer}
{after}
"""


def kit_for(tmp_path, program: str, timeout_s: float = 60.0) -> ChildKit:
    path = tmp_path / "program.py"
    path.write_text(program)
    environment = {"PYTHONPATH": ROOT}
    return ChildKit([sys.executable, str(path)], "generic", timeout_s, environment)


def by_hand(answer: str, before: str = "", after: str = "") -> str:
    return BY_HAND.format(answer=answer, before=before, after=after)


def verdicts(findings) -> dict[str, Verdict]:
    found: dict[str, Verdict] = {}
    for finding in findings:
        if found.get(finding.item_id) is not Verdict.FAIL:
            found[finding.item_id] = finding.verdict
    return found


def test_a_child_on_our_runner_passes_every_rule(tmp_path):
    seen: list[str] = []
    report = kit_for(tmp_path, GOOD).run(seen.append)
    by_item = {finding.item_id: finding for finding in report.findings()}
    rules = [finding for item, finding in by_item.items() if item.startswith("CHILD-")]
    assert [finding for finding in rules if finding.verdict is not Verdict.PASS] == []
    assert len(rules) == 22
    assert by_item["PY-01"].verdict is Verdict.NOT_TESTABLE
    assert report.exit_status == 0
    assert "life of a lease" in seen


@pytest.mark.parametrize(
    ("program", "item"),
    [
        (by_hand("status(action); status(action)"), "CHILD-13"),
        (
            by_hand("status(action); time.sleep(0.3); status(action); time.sleep(0.3)"),
            "CHILD-13",
        ),
        (by_hand("say('text'); status(action); sys.exit()"), "CHILD-14"),
        (by_hand("status('bogus')"), "CHILD-01"),
        (by_hand("status(action) if action == 'initialize' else sys.exit(3)"), "CHILD-02"),
        (by_hand("status(action)", after="sys.exit(3)"), "CHILD-15"),
        (
            by_hand(
                textwrap.dedent(
                    """
                    if action != 'initialize':
                        say('{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":"1"}\\n')
                    status(action)
                    """
                )
                .strip()
                .replace("\n", "\n    ")
            ),
            "CHILD-11",
        ),
    ],
)
def test_a_child_with_bad_manners_fails_its_rule(tmp_path, program, item):
    found = verdicts(child.life_of_a_lease(kit_for(tmp_path, program)))
    assert found[item] is Verdict.FAIL


def test_a_child_that_forgets_the_end_of_the_shard_fails(tmp_path):
    found = verdicts(child.end_of_a_shard(kit_for(tmp_path, by_hand("status(action)"))))
    assert found["CHILD-10"] is Verdict.FAIL
    assert found["CHILD-22"] is Verdict.FAIL


def test_a_child_that_needs_a_record_at_the_end_of_the_shard_fails(tmp_path):
    answer = (
        "if action == 'processRecords': number = None\n"
        "    if action == 'shardEnded':\n"
        "        ask = {'action': 'checkpoint', 'sequenceNumber': number, 'subSequenceNumber': None}\n"
        "        say(json.dumps(ask) + '\\n'); sys.stdin.readline()\n"
        "    status(action)"
    )
    found = verdicts(child.end_of_a_shard(kit_for(tmp_path, by_hand(answer))))
    assert found["CHILD-10"] is Verdict.PASS
    assert found["CHILD-22"] is Verdict.FAIL


@pytest.mark.parametrize(
    ("number", "verdict"),
    [
        ("records[-1]['sequenceNumber']", Verdict.FAIL),
        ("(records or [{'sequenceNumber': '1'}])[-1]['sequenceNumber']", Verdict.FAIL),
        ("last", Verdict.PASS),
        ("None", Verdict.PASS),
    ],
)
def test_a_batch_without_records_is_no_reason_to_ask_at_another_number(tmp_path, number, verdict):
    answer = (
        "if action == 'processRecords':\n"
        "        records = message['records']\n"
        "        last = records[-1]['sequenceNumber'] if records else last\n"
        f"        ask = {{'action': 'checkpoint', 'sequenceNumber': {number},"
        " 'subSequenceNumber': None}\n"
        "        say(json.dumps(ask) + '\\n'); sys.stdin.readline()\n"
        "    status(action)"
    )
    kit = kit_for(tmp_path, by_hand(answer))
    found = verdicts(child.a_batch_without_records_after_others(kit))
    assert found["CHILD-21"] is verdict


@pytest.mark.parametrize(
    ("known", "verdict", "evidence"),
    [
        ("shutdown", Verdict.FAIL, "use amazon_kclpy (or aws-kcl) 2 or later"),
        ("leaseLost", Verdict.PASS, "leaseLost is answered"),
        ("nothing", Verdict.NOT_TESTABLE, "neither"),
    ],
)
def test_a_child_for_the_protocol_of_kcl_1_is_recognized(tmp_path, known, verdict, evidence):
    program = by_hand(f"status(action) if action in ('initialize', '{known}') else sys.exit(1)")
    (finding,) = child.the_protocol_of_kcl_1(kit_for(tmp_path, program))
    assert (finding.item_id, finding.verdict) == ("CHILD-20", verdict)
    assert evidence in finding.evidence


def test_a_child_that_starts_only_once_is_not_judged_for_the_protocol_of_kcl_1(tmp_path):
    marker = tmp_path / "started"
    program = by_hand(
        f"status(action) if action == 'initialize' and not os.path.exists({str(marker)!r}) "
        f"else sys.exit(open({str(marker)!r}, 'w').close())"
    )
    assert list(child.the_protocol_of_kcl_1(kit_for(tmp_path, program))) == []
    assert marker.exists()


def test_a_child_that_ignores_the_end_of_stdin_fails_and_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(child, "EXIT_S", 0.3)
    program = by_hand("status(action)", after="time.sleep(600)")
    found = verdicts(child.ends_of_stdin(kit_for(tmp_path, program)))
    assert found == {"CHILD-16": Verdict.FAIL, "CHILD-19": Verdict.FAIL}


def test_a_silent_child_fails_after_the_time_limit(tmp_path):
    found = verdicts(child.positions_at_the_start(kit_for(tmp_path, by_hand("pass"), 0.3)))
    assert found["CHILD-17"] is Verdict.FAIL


def test_a_child_that_never_checkpoints_cannot_be_judged_on_it(tmp_path):
    kit = kit_for(tmp_path, by_hand("status(action)"))
    assert verdicts(child.refused_checkpoints(kit)) == {"CHILD-12": Verdict.NOT_TESTABLE}


def test_a_program_that_is_not_there_is_an_error():
    with pytest.raises(FileNotFoundError), ChildKit([os.sep + "nonexistent"]).peer():
        pass
