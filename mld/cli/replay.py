"""``kcl-mld replay``: play a recorded conversation to a child, offline, and compare its answers."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kcl_mld.children.adapters.kclpy_path import PYTHON_PATHS
from kcl_mld.children.adapters.program import StartPlace, examine_child
from kcl_mld.children.rules.child_environment import ChildFacts, environment_of_child
from kcl_mld.cli.arguments import DAY_S, Finite, working_directory
from kcl_mld.config.config import Kclpy
from kcl_mld.config.findings import Severity
from kcl_mld.errors import ConfigError
from kcl_mld_protocol.codec import Junk, decode_from_child, decode_from_daemon, encode
from kcl_mld_protocol.conform.peer import Peer, store
from kcl_mld_protocol.messages import (
    CheckpointRequest,
    CheckpointResult,
    Initialize,
    Shutdown,
    Status,
)
from kcl_mld_protocol.transcripts import Direction, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kcl_mld_protocol.messages import DaemonMessage
    from kcl_mld_protocol.transcripts import TranscriptLine

#: How long a child has to end behind the end of its stdin.
EXIT_S = 10.0
_SHOWN_CHARACTERS = 200


takes_timeout = click.option(
    "--timeout-s",
    type=Finite(0, DAY_S, least_open=True),
    default=60.0,
    show_default=True,
    help="Longest wait for an answer.",
)


def require_startable(command: Sequence[str], kclpy: Kclpy = Kclpy.AUTO) -> None:
    """Check whether a child can be started.

    Raises:
        ConfigError: it can't.
    """
    for problem in examine_child(command, StartPlace(os.environ, working_directory()), kclpy):
        if problem.severity is Severity.ERROR:
            raise ConfigError(problem.text)


@contextmanager
def started_child(
    command: Sequence[str], facts: ChildFacts, timeout_s: float, kclpy: Kclpy = Kclpy.AUTO
) -> Iterator[Peer]:
    """A child with the environment that a daemon gives it; its stderr is shown, and it is killed."""
    environment = environment_of_child(os.environ, facts.variables(), PYTHON_PATHS[kclpy])
    peer = Peer(
        command, environment, timeout_s, lambda chunk: click.echo(chunk, nl=False, err=True)
    )
    try:
        yield peer
    finally:
        peer.kill()


@dataclass
class RecordedAction:
    """An action of the daemon and what the recorded child made of it.

    Attributes:
        sent: its checkpoint requests and its status, encoded.
        results: of its checkpoint requests, in their order.
    """

    message: DaemonMessage
    sent: list[str] = field(default_factory=list)
    results: list[CheckpointResult] = field(default_factory=list)


def steps(lines: Sequence[TranscriptLine]) -> list[RecordedAction]:
    """The actions of a recording.

    Raises:
        ValueError: it has no ``initialize``, or a line that no daemon writes.
    """
    found: list[RecordedAction] = []
    for entry in lines:
        if entry.direction is Direction.TO_CHILD:
            message = decode_from_daemon(entry.line)
            if isinstance(message, Junk | Shutdown):
                raise ValueError(f"a line that no daemon writes: {entry.line!r:.80}")
            if isinstance(message, CheckpointResult) and found:
                found[-1].results.append(message)
            elif found or isinstance(message, Initialize):
                found.append(RecordedAction(message))
        elif entry.direction is Direction.FROM_CHILD and found:
            sent = decode_from_child(entry.line) if entry.line else None
            if isinstance(sent, CheckpointRequest | Status):
                found[-1].sent.append(_text(sent))
    if not found:
        raise ValueError("it has no initialize message")
    return found


def _text(message: CheckpointRequest | Status) -> str:
    return encode(message).decode().rstrip("\n")


def play(peer: Peer, recorded: Sequence[RecordedAction]) -> Iterator[str]:
    """Play the actions; yields a text for each that the child answers in another way."""
    for number, step in enumerate(recorded, 1):
        results = iter(step.results)

        def answer(
            request: CheckpointRequest, results: Iterator[CheckpointResult] = results
        ) -> CheckpointResult:
            then = next(results, None)
            return store(request) if then is None else _result(request, then.error)

        exchange = peer.send(step.message, answer)
        now = [_text(request) for request in exchange.checkpoints]
        if exchange.answered:
            now.append(_text(Status(step.message.action)))
        if now != step.sent or not exchange.answered:
            yield _difference(
                f"message {number}, {step.message.action}", step.sent, now, exchange.failure
            )
        if not exchange.answered:
            return


def _result(request: CheckpointRequest, error: str | None) -> CheckpointResult:
    return CheckpointResult(request.sequence_number, request.sub_sequence_number, error)


def _difference(where: str, then: list[str], now: list[str], failure: str) -> str:
    lines = [f"{where}:"]
    for number in range(max(len(then), len(now))):
        one, other = (sent[number : number + 1] for sent in (then, now))
        if one != other:
            lines += [f"  recorded: {text[:_SHOWN_CHARACTERS]}" for text in one or ["nothing"]]
            lines += [f"  now:      {text[:_SHOWN_CHARACTERS]}" for text in other or ["nothing"]]
    return "\n".join([*lines, f"  {failure}"] if failure else lines)


@click.command("replay")
@takes_timeout
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("command", nargs=-1, required=True, type=click.Path())
@click.pass_context
def replay(context: click.Context, timeout_s: float, file: Path, command: tuple[str, ...]) -> None:
    """Play the recording FILE to the child CMD, and show where its answers differ.

    FILE is one that a daemon with recordTo has made. Its checkpoints go nowhere: requests get the
    recorded results. Exit code 1 if an answer differs.
    """
    try:
        recorded = steps(parse(file.read_bytes()))
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{file}: no recording of a child: {error}") from None
    require_startable(command)
    context.exit(_replay(recorded, command, timeout_s))


def _replay(recorded: Sequence[RecordedAction], command: Sequence[str], timeout_s: float) -> int:
    first = recorded[0].message
    shard_id = first.shard_id if isinstance(first, Initialize) else None
    facts = ChildFacts(
        shard_id=shard_id or "replay",
        lease_key=shard_id or "replay",
        stream_name="replay",
        application_name="replay",
        worker_id="replay",
        pid=os.getpid(),
    )
    with started_child(command, facts, timeout_s) as peer:
        differences = 0
        for text in play(peer, recorded):
            differences += 1
            click.echo(text)
        peer.close_stdin()
        peer.wait_exit(EXIT_S)
    click.echo(
        f"{len(recorded)} messages played, {differences or 'no'}"
        f" {'answer differs' if differences == 1 else 'answers differ'}"
    )
    return 1 if differences else 0
