"""The transition table of the multilang protocol, for both roles, and nothing else.

Two rules hold this file together:

* Everything that affects what may be said next lives here. The connections look a signal up in
  :data:`TABLE` and go where it says; they hold no ``if`` about order.
* This file knows neither bytes nor JSON. A *signal* is a message kind, or one of the things that
  can happen instead of a message: a status for another action, the end of the stream, and our own
  wish to close.

Theory of operation
-------------------
The protocol is a strict conversation between one daemon and one child, one per held lease. The
daemon speaks first and always one action at a time; the child works and then answers with a
status. While it works it may ask for checkpoints, each answered before anything else is said::

    daemon                          child
    IDLE         -- action ------>  IDLE
    AWAITING_x                      HANDLING_x
    ANSWERING_x  <- checkpoint ---  ASKING_x        (any number of times)
    AWAITING_x   -- result ------>  HANDLING_x
    IDLE         <- status -------  IDLE

A *tick*, an addition of kcl-mld, and a *keep-alive* may be said while a status is owed, and move
nothing.

``initialize`` comes first and once; hence ``START``. After the status of ``leaseLost`` or
``shardEnded`` there is nothing left to say: the daemon closes the child's stdin and reads stdout
to its end (``DRAINING``), then all is over (``CLOSED``).

A status that names another action is a failure of the action, as is the end of stdout. Both put
the daemon into ``ERROR``, where it may only drain, with one exception: a failed
``shutdownRequested`` is survivable, the daemon goes on to say ``leaseLost``.

The states of the child mirror those of the daemon. A child that meets the end of stdin while idle
has been dismissed (``CLOSED``); in the middle of a checkpoint request that is an error.

Where the rows come from (KCL 3.5.1, package ``software.amazon.kinesis.multilang``)
-----------------------------------------------------------------------------------
* START, one initialize: ``MultiLangShardRecordProcessor.initialize`` (70-97).
* action, then status or checkpoint: ``MultiLangProtocol.waitForStatusMessage`` (154-204).
* mismatch fails at once: ``MultiLangProtocol.validateStatusMessage`` (250-259).
* checkpoint answered in every action, with an error in those that carry no checkpointer:
  ``MultiLangProtocol.checkpoint`` (271-298).
* shutdownRequested survives failure: ``MultiLangShardRecordProcessor`` (122-132).
* leaseLost and shardEnded end in draining: ``childProcessShutdownSequence`` (238-274).
* child rows: kclpy 3.2.0 ``kcl.py`` (run, _perform_action, Checkpointer.checkpoint).

Change a row and the table in ``docs/architecture.md`` changes with it: :func:`markdown` prints it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from kcl_mld_protocol.errors import LocalProtocolError
from kcl_mld_protocol.messages import REQUESTS, Action


class Role(StrEnum):
    """Which end of the pipes a connection plays."""

    DAEMON = "daemon"
    CHILD = "child"


class Signal(StrEnum):
    """What moves the table: a message kind, or an event that stands in for one."""

    INITIALIZE = "initialize"
    PROCESS_RECORDS = "processRecords"
    LEASE_LOST = "leaseLost"
    SHARD_ENDED = "shardEnded"
    SHUTDOWN_REQUESTED = "shutdownRequested"
    CHECKPOINT_REQUEST = "checkpoint request"
    CHECKPOINT_RESULT = "checkpoint result"
    TICK = "tick"
    #: A message without content that shows a daemon with a time-out that its child is alive.
    KEEP_ALIVE = "keep-alive"
    STATUS = "status"
    MISMATCHED_STATUS = "status of another action"
    END_OF_STREAM = "end of stream"
    CLOSE = "close"
    #: A line that the child cannot read: kclpy dies of it, so does our child connection.
    BROKEN_LINE = "broken line"


class State(StrEnum):
    """Where one end of the conversation stands."""

    START = "START"
    IDLE = "IDLE"
    # the daemon waits for a status
    AWAITING_INITIALIZE = "AWAITING_INITIALIZE"
    AWAITING_PROCESS_RECORDS = "AWAITING_PROCESS_RECORDS"
    AWAITING_LEASE_LOST = "AWAITING_LEASE_LOST"
    AWAITING_SHARD_ENDED = "AWAITING_SHARD_ENDED"
    AWAITING_SHUTDOWN_REQUESTED = "AWAITING_SHUTDOWN_REQUESTED"
    # the daemon owes a checkpoint result
    ANSWERING_INITIALIZE = "ANSWERING_INITIALIZE"
    ANSWERING_PROCESS_RECORDS = "ANSWERING_PROCESS_RECORDS"
    ANSWERING_LEASE_LOST = "ANSWERING_LEASE_LOST"
    ANSWERING_SHARD_ENDED = "ANSWERING_SHARD_ENDED"
    ANSWERING_SHUTDOWN_REQUESTED = "ANSWERING_SHUTDOWN_REQUESTED"
    # the child works and owes a status
    HANDLING_INITIALIZE = "HANDLING_INITIALIZE"
    HANDLING_PROCESS_RECORDS = "HANDLING_PROCESS_RECORDS"
    HANDLING_LEASE_LOST = "HANDLING_LEASE_LOST"
    HANDLING_SHARD_ENDED = "HANDLING_SHARD_ENDED"
    HANDLING_SHUTDOWN_REQUESTED = "HANDLING_SHUTDOWN_REQUESTED"
    # the child waits for a checkpoint result
    ASKING_INITIALIZE = "ASKING_INITIALIZE"
    ASKING_PROCESS_RECORDS = "ASKING_PROCESS_RECORDS"
    ASKING_LEASE_LOST = "ASKING_LEASE_LOST"
    ASKING_SHARD_ENDED = "ASKING_SHARD_ENDED"
    ASKING_SHUTDOWN_REQUESTED = "ASKING_SHUTDOWN_REQUESTED"
    # the end
    DRAINING = "DRAINING"
    CLOSED = "CLOSED"
    ERROR = "ERROR"


_Rows = dict[State, dict[Signal, State]]


def _daemon_rows() -> _Rows:
    """The daemon's rows; those of the five actions differ only where comments note it."""
    rows: _Rows = {
        State.START: {Signal.INITIALIZE: State.AWAITING_INITIALIZE},
        State.IDLE: {
            Signal(action): State[f"AWAITING_{action.name}"]
            for action in REQUESTS
            if action is not Action.INITIALIZE  # once per child
        },
        State.DRAINING: {Signal.END_OF_STREAM: State.CLOSED},
        State.CLOSED: {Signal.END_OF_STREAM: State.CLOSED},
        State.ERROR: {Signal.END_OF_STREAM: State.CLOSED},
    }
    for action in REQUESTS:
        awaiting, answering = State[f"AWAITING_{action.name}"], State[f"ANSWERING_{action.name}"]
        final = action in {Action.LEASE_LOST, Action.SHARD_ENDED}  # stdin closes after these
        survivable = action is Action.SHUTDOWN_REQUESTED  # its failure is only logged
        failed = State.IDLE if survivable else State.ERROR
        rows[awaiting] = {
            Signal.STATUS: State.DRAINING if final else State.IDLE,
            Signal.CHECKPOINT_REQUEST: answering,
            Signal.TICK: awaiting,
            Signal.MISMATCHED_STATUS: failed,
            Signal.END_OF_STREAM: failed,
        }
        rows[answering] = {Signal.CHECKPOINT_RESULT: awaiting}
    for state, row in rows.items():
        ended = state in {State.CLOSED, State.DRAINING, State.ERROR}
        row[Signal.CLOSE] = state if ended else State.DRAINING
    return rows


def _child_rows() -> _Rows:
    """The child's rows."""
    rows: _Rows = {
        State.START: {Signal.INITIALIZE: State.HANDLING_INITIALIZE},
        State.IDLE: {
            Signal(action): State[f"HANDLING_{action.name}"]
            for action in REQUESTS
            if action is not Action.INITIALIZE
        },
        State.CLOSED: {Signal.END_OF_STREAM: State.CLOSED},
        State.ERROR: {},
    }
    for state in (State.START, State.IDLE):
        rows[state] |= {Signal.END_OF_STREAM: State.CLOSED, Signal.BROKEN_LINE: State.ERROR}
    for action in REQUESTS:
        handling, asking = State[f"HANDLING_{action.name}"], State[f"ASKING_{action.name}"]
        rows[handling] = {
            Signal.STATUS: State.IDLE,
            Signal.CHECKPOINT_REQUEST: asking,
            Signal.TICK: handling,
            Signal.KEEP_ALIVE: handling,
        }
        rows[asking] = {
            Signal.CHECKPOINT_RESULT: handling,
            Signal.END_OF_STREAM: State.ERROR,
            Signal.BROKEN_LINE: State.ERROR,
        }
    return rows


#: role -> state -> signal -> next state. A signal that is missing is illegal in that state.
TABLE: Final[dict[Role, _Rows]] = {Role.DAEMON: _daemon_rows(), Role.CHILD: _child_rows()}

#: The action in progress, for every state inside one.
ACTION_OF: Final[dict[State, Action]] = {
    State[f"{prefix}_{action.name}"]: action
    for prefix in ("AWAITING", "ANSWERING", "HANDLING", "ASKING")
    for action in REQUESTS
}


def next_state(role: Role, state: State, signal: Signal) -> State:
    """Where a signal leads.

    Raises:
        LocalProtocolError: the signal is illegal in that state.
    """
    target = TABLE[role].get(state, {}).get(signal)
    if target is None:
        raise LocalProtocolError(f"{signal.value} is not possible in state {state.value}")
    return target


def markdown(role: Role) -> str:
    """The table of one role as a Markdown table, for the documentation.

    States that differ only in the action of their name share their rows, with ``…`` for the action
    where it may be any, and signals that lead to the same state share a row. What leaves the state
    as it is has no row.
    """
    groups: dict[tuple[tuple[str, str], ...], list[State]] = {}
    for state, row in TABLE[role].items():
        targets: dict[str, list[str]] = {}
        for signal, target in row.items():
            if target is not state:
                targets.setdefault(_of_any_action(target, state), []).append(signal.value)
        rows = tuple((", ".join(signals), name) for name, signals in targets.items())
        groups.setdefault(rows, []).append(state)
    lines = ["| state | what happens | next state |", "|---|---|---|"]
    for rows, states in groups.items():
        name = ", ".join(f"`{state}`" for state in states)
        if len(states) == len(REQUESTS):  # the same for every action
            name = f"`{_of_any_action(states[0], states[0])}`"
        for signals_text, target_name in rows:
            lines.append(f"| {name} | {signals_text} | `{target_name}` |")
            name = ""
    return "\n".join(lines)


def _of_any_action(target: State, state: State) -> str:
    """The name of a state, with ``…`` for the action that it shares with ``state``."""
    action = ACTION_OF.get(target)
    if action is None or action is not ACTION_OF.get(state):
        return str(target)
    return target.removesuffix(action.name) + "…"
