"""Both ends, wired back to back and alone."""

from __future__ import annotations

import pytest

from kcl_mld_protocol import (
    NEED_DATA,
    Action,
    CheckpointRequest,
    CheckpointRequested,
    CheckpointResult,
    ChildConnection,
    DaemonConnection,
    EndOfStream,
    IgnoredMessage,
    Initialize,
    JunkLine,
    LeaseLost,
    LineTooLong,
    LocalProtocolError,
    ProcessRecords,
    RemoteProtocolError,
    ShardEnded,
    Shutdown,
    ShutdownRequested,
    State,
    Status,
    StatusReceived,
    encode,
)

INITIALIZE = Initialize("shardId-0", "TRIM_HORIZON", 0)
BATCH = ProcessRecords((), 0)
ACTIONS = [BATCH, LeaseLost(), ShardEnded(), ShutdownRequested()]


class Pair:
    """A daemon connection wired to a child connection."""

    def __init__(self) -> None:
        self.daemon = DaemonConnection("shardId-0")
        self.child = ChildConnection()

    def tell(self, message) -> None:
        self.child.receive_data(self.daemon.send(message))
        assert self.child.next_event() == message

    def answer(self, message):
        self.daemon.receive_data(self.child.send(message))
        return self.daemon.next_event()

    def exchange(self, message) -> None:
        self.tell(message)
        assert self.answer(Status(message.action)) == StatusReceived(message.action)


def started() -> DaemonConnection:
    daemon = DaemonConnection("shardId-0")
    daemon.send(INITIALIZE)
    daemon.receive_data(b'{"action":"status","responseFor":"initialize"}\n')
    assert daemon.next_event() == StatusReceived(Action.INITIALIZE)
    return daemon


def test_a_whole_life_passes_between_the_two_ends():
    pair = Pair()
    assert pair.child.handling is None
    pair.exchange(INITIALIZE)
    for _ in range(3):
        pair.exchange(BATCH)
    pair.exchange(ShutdownRequested())
    pair.exchange(LeaseLost())
    assert pair.daemon.state is State.DRAINING
    pair.child.receive_data(b"")
    assert pair.child.next_event() == EndOfStream()
    assert pair.child.next_event() == EndOfStream()
    pair.daemon.receive_data(b"")
    assert pair.daemon.next_event() == EndOfStream()
    assert pair.daemon.next_event() == EndOfStream()
    assert pair.daemon.state is State.CLOSED
    assert pair.daemon.stream_ended


@pytest.mark.parametrize("action", [INITIALIZE, *ACTIONS])
def test_any_number_of_checkpoints_fits_inside_any_action(action):
    pair = Pair()
    if action is not INITIALIZE:
        pair.exchange(INITIALIZE)
    pair.tell(action)
    assert pair.daemon.awaiting is action.action
    assert pair.child.handling is action.action
    for number in range(3):
        request = CheckpointRequest(str(number), None)
        assert pair.answer(request) == CheckpointRequested(request, action.action)
        pair.tell(CheckpointResult(str(number), None))
    assert pair.answer(Status(action.action)) == StatusReceived(action.action)


def test_the_daemon_says_nothing_else_while_it_owes_a_result():
    pair = Pair()
    pair.tell(INITIALIZE)
    pair.answer(CheckpointRequest())
    with pytest.raises(LocalProtocolError, match="not possible in state ANSWERING_INITIALIZE"):
        pair.daemon.send(BATCH)
    with pytest.raises(LocalProtocolError, match="answer the checkpoint"):
        pair.daemon.next_event()


def test_initialize_comes_first_and_once():
    daemon = DaemonConnection("s")
    assert daemon.next_event() is NEED_DATA
    for message in [*ACTIONS, CheckpointResult(None, None)]:
        with pytest.raises(LocalProtocolError, match="START"):
            daemon.send(message)
    with pytest.raises(LocalProtocolError, match="IDLE"):
        started().send(INITIALIZE)


def test_no_action_is_sent_before_the_last_is_answered():
    daemon = started()
    daemon.send(BATCH)
    with pytest.raises(LocalProtocolError, match="AWAITING_PROCESS_RECORDS"):
        daemon.send(BATCH)


def test_a_message_that_cannot_be_encoded_changes_nothing():
    daemon = DaemonConnection("s")
    with pytest.raises(LocalProtocolError):
        daemon.send(Initialize("s", "1", 0, {"x": object()}))
    assert daemon.state is State.START


@pytest.mark.parametrize(
    "message", [Status("initialize"), CheckpointRequest(), Shutdown("x"), None]
)
def test_a_daemon_never_sends_a_childs_message(message):
    with pytest.raises(LocalProtocolError, match="a daemon never sends"):
        started().send(message)


def test_an_encoded_line_moves_the_state_without_being_read():
    daemon = started()
    line = encode(BATCH)
    assert daemon.send_encoded(Action.PROCESS_RECORDS, line) is line
    assert daemon.awaiting is Action.PROCESS_RECORDS
    with pytest.raises(LocalProtocolError, match="not possible"):
        daemon.send_encoded(Action.PROCESS_RECORDS, line)
    daemon.receive_data(b'{"action":"checkpoint"}\n')
    daemon.next_event()
    daemon.send_encoded(Action.CHECKPOINT, encode(CheckpointResult(None, None)))
    assert daemon.state is State.AWAITING_PROCESS_RECORDS


def test_an_encoded_line_needs_its_end_and_a_daemons_action():
    daemon = started()
    with pytest.raises(LocalProtocolError, match="newline"):
        daemon.send_encoded(Action.LEASE_LOST, b'{"action":"leaseLost"}')
    with pytest.raises(LocalProtocolError, match="a daemon never sends status"):
        daemon.send_encoded(Action.STATUS, b"{}\n")
    assert daemon.state is State.IDLE


def test_empty_lines_are_dropped_and_junk_is_reported_until_the_status():
    daemon = started()
    daemon.send(BATCH)
    daemon.receive_data(
        b'\r\n\n   \nhello\n{"action":"leaseLost"}\n'
        b'x{"action":"status","responseFor":"processRecords"}\n'
        b'{"action":"status","responseFor":"processRecords"}'
    )
    assert daemon.next_event() == JunkLine(b"   ", "not JSON")
    assert daemon.next_event() == JunkLine(b"hello", "not JSON")
    assert daemon.next_event() == IgnoredMessage(Action.LEASE_LOST)
    glued = daemon.next_event()
    assert isinstance(glued, JunkLine)
    assert "newline" in glued.reason
    assert daemon.next_event() is NEED_DATA
    daemon.receive_data(b"\n")
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS)


STATUS = b'{"action":"status","responseFor":"processRecords"}'


@pytest.mark.parametrize(
    ("line", "action", "answers"),
    [
        (b"done" + STATUS, "status", True),
        (b'done {"action":"status","responseFor":"initialize"}', "status", False),
        (b"done " + STATUS + b" and more", "status", False),
        (b'done{"action":"checkpoint","sequenceNumber":"1"}', "checkpoint", False),
        (b'done{"action":"checkpoint"}' + STATUS, "checkpoint", True),
        (b'{"level":"info"}' + STATUS, "status", True),
        (b"done" + STATUS + b"}", "status", False),
    ],
)
def test_a_message_behind_other_output_is_reported_and_taken_only_on_demand(line, action, answers):
    daemon = started()
    daemon.send(BATCH)
    daemon.receive_data(line + b"\n")
    event = daemon.next_event()
    assert isinstance(event, JunkLine)
    assert (event.line, event.action, event.is_glued) == (line, action, True)
    assert daemon.next_event() is NEED_DATA
    assert daemon.has_glued_status is answers
    if answers:
        assert daemon.take_glued_status() == StatusReceived(Action.PROCESS_RECORDS)
        assert daemon.state is State.IDLE
    with pytest.raises(LocalProtocolError, match="no line ended with a status"):
        daemon.take_glued_status()


def test_a_second_message_on_a_line_is_reported_before_the_first_is_taken():
    daemon = started()
    daemon.send(BATCH)
    daemon.receive_data(b'{"action":"checkpoint","sequenceNumber":"1"}' + STATUS + b"\n")
    event = daemon.next_event()
    assert isinstance(event, JunkLine)
    assert ("second message" in event.reason, event.action, event.is_glued) == (
        True,
        "status",
        True,
    )
    request = CheckpointRequest("1", None)
    assert daemon.next_event() == CheckpointRequested(request, Action.PROCESS_RECORDS)
    daemon.send(CheckpointResult("1", None))
    assert daemon.next_event() is NEED_DATA
    assert daemon.take_glued_status() == StatusReceived(Action.PROCESS_RECORDS)


@pytest.mark.parametrize("more", [b'{"action":"leaseLost"}', STATUS])
def test_a_later_message_takes_the_place_of_a_glued_status(more):
    daemon = started()
    daemon.send(BATCH)
    daemon.receive_data(b"done" + STATUS + b"\n" + STATUS + STATUS + b"\n" + more + b"\n")
    assert isinstance(daemon.next_event(), JunkLine)
    assert isinstance(daemon.next_event(), JunkLine)
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS)
    daemon.send(BATCH)
    daemon.next_event()
    assert not daemon.has_glued_status


def test_what_a_child_says_while_idle_waits_for_the_next_action():
    daemon = started()
    daemon.receive_data(b'{"action":"status","responseFor":"processRecords"}\n')
    assert daemon.next_event() is NEED_DATA
    assert daemon.buffered_bytes == 51
    daemon.send(BATCH)
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS)
    assert daemon.buffered_bytes == 0


def test_a_surplus_status_fails_the_next_action():
    daemon = started()
    daemon.receive_data(b'{"action":"status","responseFor":"initialize"}\n')
    daemon.send(BATCH)
    with pytest.raises(RemoteProtocolError, match="'initialize' instead of processRecords"):
        daemon.next_event()
    assert daemon.state is State.ERROR
    with pytest.raises(LocalProtocolError, match="ERROR"):
        daemon.send(LeaseLost())


def test_the_end_of_stdout_while_waiting_fails_the_action_after_what_was_said():
    daemon = started()
    daemon.send(BATCH)
    daemon.receive_data(b"bye")
    daemon.receive_data(b"")
    assert daemon.next_event() == JunkLine(b"bye", "not JSON")
    with pytest.raises(RemoteProtocolError, match="ended before it answered processRecords"):
        daemon.next_event()
    assert daemon.next_event() == EndOfStream()


def test_a_last_status_without_line_end_counts():
    daemon = started()
    daemon.send(BATCH)
    daemon.receive_data(b'{"action":"status","responseFor":"processRecords"}')
    daemon.receive_data(b"")
    assert daemon.next_event() == StatusReceived(Action.PROCESS_RECORDS)


def test_a_failed_shutdown_notice_is_survived_by_lease_lost():
    daemon = started()
    daemon.send(ShutdownRequested())
    daemon.receive_data(b'{"action":"status","responseFor":"leaseLost"}\n')
    with pytest.raises(RemoteProtocolError):
        daemon.next_event()
    daemon.send(LeaseLost())
    daemon.receive_data(b"")
    with pytest.raises(RemoteProtocolError):
        daemon.next_event()
    assert daemon.state is State.ERROR


def test_everything_after_the_last_status_is_drained():
    daemon = started()
    daemon.send(LeaseLost())
    daemon.receive_data(b'{"action":"status","responseFor":"leaseLost"}\n\nbye\n')
    assert daemon.next_event() == StatusReceived(Action.LEASE_LOST)
    assert daemon.next_event() == JunkLine(b"bye", "after the last status")
    assert daemon.next_event() is NEED_DATA
    daemon.receive_data(b"")
    assert daemon.next_event() == EndOfStream()


def test_closing_drains_from_any_state():
    daemon = started()
    daemon.send(BATCH)
    daemon.close()
    daemon.close()
    assert daemon.awaiting is None
    daemon.receive_data(b'{"action":"status","responseFor":"processRecords"}\n')
    assert isinstance(daemon.next_event(), JunkLine)


def test_an_over_long_line_is_junk_and_the_rest_is_read():
    daemon = DaemonConnection("s", max_line_bytes=100)
    daemon.send(INITIALIZE)
    daemon.receive_data(b"x" * 101 + b'\n{"action":"status","responseFor":"initialize"}\n')
    assert daemon.next_event() == JunkLine(b"x" * 101, "a line is longer than 100 bytes")
    assert daemon.next_event() == StatusReceived(Action.INITIALIZE)
    daemon.close()
    daemon.receive_data(b"x" * 101)
    assert isinstance(daemon.next_event(), JunkLine)


def test_a_child_waits_for_data():
    child = ChildConnection()
    assert child.next_event() is NEED_DATA
    child.receive_data(encode(INITIALIZE))
    child.next_event()
    child.receive_data(encode(BATCH))
    assert child.next_event() is NEED_DATA  # it has to answer first
    child.send(Status("initialize"))
    assert child.next_event() == BATCH


@pytest.mark.parametrize("message", [LeaseLost(), Shutdown("x"), CheckpointResult("1", 0)])
def test_a_child_never_sends_a_daemons_message(message):
    with pytest.raises(LocalProtocolError, match="a child never sends"):
        ChildConnection().send(message)


def test_a_child_answers_only_the_action_in_progress():
    child = ChildConnection()
    with pytest.raises(LocalProtocolError, match="START"):
        child.send(Status("initialize"))
    child.receive_data(encode(INITIALIZE))
    child.next_event()
    with pytest.raises(LocalProtocolError, match="awaits a status for initialize"):
        child.send(Status("processRecords"))
    child.send(Status("initialize"))
    with pytest.raises(LocalProtocolError, match="IDLE"):
        child.send(CheckpointRequest())


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"\n", "cannot read"),
        (b"x\n", "cannot read"),
        (b'{"action":"shutdown","reason":"ZOMBIE"}\n', "sent shutdown in state START"),
        (b'{"action":"leaseLost"}\n', "sent leaseLost in state START"),
    ],
)
def test_a_child_gives_up_on_a_line_that_it_cannot_use(line, why):
    child = ChildConnection()
    child.receive_data(line)
    with pytest.raises(RemoteProtocolError, match=why):
        child.next_event()
    with pytest.raises(LocalProtocolError, match="failed"):
        child.next_event()


def test_a_child_refuses_a_line_over_its_limit():
    child = ChildConnection(max_line_bytes=10)
    child.receive_data(encode(INITIALIZE))
    with pytest.raises(LineTooLong):
        child.next_event()
    assert child.state is State.ERROR


@pytest.mark.parametrize("data", [b"", b'{"action":"leaseLost"}\n'])
def test_a_child_that_asked_for_a_checkpoint_accepts_only_its_result(data):
    child = ChildConnection()
    child.receive_data(encode(INITIALIZE))
    child.next_event()
    child.send(CheckpointRequest())
    child.receive_data(data)
    with pytest.raises(RemoteProtocolError):
        child.next_event()
    assert child.state is State.ERROR
