"""Recorded conversations, played to children that answer as before or not."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from kcl_mld.cli.replay import replay
from kcl_mld.errors import ConfigError

RECORDED = """\
0.1 >> {"action":"initialize","shardId":"shardId-0","sequenceNumber":"LATEST","subSequenceNumber":0}
0.1 << {"action":"status","responseFor":"initialize"}
0.2 >> {"action":"processRecords","records":[],"millisBehindLatest":0}
0.2 << a stray line
0.2 << {"action":"checkpoint","sequenceNumber":"7","subSequenceNumber":0}
0.3 >> {"action":"checkpoint","sequenceNumber":"7","subSequenceNumber":0,"error":"ThrottlingException"}
0.3 << {"action":"status","responseFor":"processRecords"}
0.4 >> {"action":"leaseLost"}
0.4 << {"action":"status","responseFor":"leaseLost"}
0.5 !! stdin EOF from daemon
0.6 !! child exit rc=0
"""
#: Answers everything; asks for a checkpoint at the number that it is given, once for each result
#: that is an error.
CHILD = """
import json, sys
def say(**message):
    print(json.dumps(message), flush=True)
for line in sys.stdin:
    action = json.loads(line)["action"]
    if action == "processRecords":
        say(action="checkpoint", sequenceNumber=sys.argv[1], subSequenceNumber=0)
        error = json.loads(sys.stdin.readline())["error"]
        assert error == "ThrottlingException", error
        if sys.argv[1] == "end":
            sys.exit(3)
    say(action="status", responseFor=action)
"""


@pytest.fixture
def play(tmp_path):
    """Play a recording to the child; the exit code and the lines of stdout."""
    (tmp_path / "child.py").write_text(CHILD)

    def playing(checkpoint: str, recorded: str = RECORDED) -> tuple[int, list[str]]:
        (tmp_path / "recording.txt").write_text(recorded)
        words = [sys.executable, str(tmp_path / "child.py"), checkpoint]
        arguments = ["--timeout-s", "30", str(tmp_path / "recording.txt"), "--", *words]
        result = CliRunner().invoke(replay, arguments)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.stdout.splitlines()

    return playing


def test_a_child_that_answers_as_recorded(play):
    assert play("7") == (0, ["3 messages played, no answers differ"])


def test_a_child_that_asks_for_another_checkpoint(play):
    request = '{"action":"checkpoint","sequenceNumber":"%s","subSequenceNumber":0}'
    assert play("8") == (
        1,
        [
            "message 2, processRecords:",
            f"  recorded: {request % 7}",
            f"  now:      {request % 8}",
            "3 messages played, 1 answer differs",
        ],
    )


def test_a_child_that_ends_where_it_answered(play):
    code, lines = play("end")
    assert code == 1
    assert lines[0] == "message 2, processRecords:"
    assert '  recorded: {"action":"status","responseFor":"processRecords"}' in lines
    assert "  now:      nothing" in lines
    assert "ended before it answered processRecords" in lines[-2]


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        ("", "not enough values"),
        ("0.1 << a", "no initialize message"),
        ("0.1 ?? a", "is not a valid Direction"),
        ("0.1 >> b", "a line that no daemon writes: b'b'"),
    ],
)
def test_other_files_are_refused(play, recorded, why):
    with pytest.raises(ConfigError, match=f"no recording of a child: .*{why}"):
        play("7", recorded)
