"""The runner that turns a record processor into a child process."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import textwrap

import pytest

import kcl_mld_protocol
from kcl_mld_protocol import (
    CheckpointResult,
    Initialize,
    LeaseLost,
    LocalProtocolError,
    ProcessRecords,
    Record,
    RemoteProtocolError,
    ShardEnded,
    ShutdownRequested,
    child,
    encode,
)

RECORD = Record("aGk=", "pk", "200", 1)
START = encode(Initialize("shardId-0", "TRIM_HORIZON", 0, {"stream": "s"}))
BATCH = encode(ProcessRecords((RECORD,), 5))
STORED = encode(CheckpointResult(None, None))


class Recorder(child.RecordProcessor):
    """Keeps every input that it gets; checkpoints where told to."""

    def __init__(self, *, checkpoint=None):
        self.inputs = []
        self.checkpoint = checkpoint
        self.kept = None

    def initialize(self, initialize_input):
        super().initialize(initialize_input)
        self.inputs.append(initialize_input)

    def process_records(self, process_records_input):
        self.inputs.append(process_records_input)
        self.kept = process_records_input.checkpointer
        if self.checkpoint is not None:
            process_records_input.checkpointer.checkpoint(*self.checkpoint)

    def lease_lost(self, lease_lost_input):
        super().lease_lost(lease_lost_input)
        self.inputs.append(lease_lost_input)

    def shutdown_requested(self, shutdown_requested_input):
        super().shutdown_requested(shutdown_requested_input)
        self.inputs.append(shutdown_requested_input)


def serve(processor, *lines):
    out = io.BytesIO()
    child.run(processor, io.BytesIO(b"".join(lines)), out)
    return out.getvalue().decode().splitlines()


def status(action):
    return f'{{"action":"status","responseFor":"{action}"}}'


def test_every_message_reaches_its_callback_and_is_answered():
    processor = Recorder()
    answers = serve(processor, START, BATCH, encode(ShutdownRequested()), encode(LeaseLost()))
    assert answers == [
        status("initialize"),
        status("processRecords"),
        status("shutdownRequested"),
        status("leaseLost"),
    ]
    start, batch, shutdown, lost = processor.inputs
    assert start == child.InitializeInput("shardId-0", "TRIM_HORIZON", 0, {"stream": "s"})
    assert batch.records == (RECORD,)
    assert batch.records[0].binary_data == b"hi"
    assert batch.millis_behind_latest == 5
    assert isinstance(shutdown, child.ShutdownRequestedInput)
    assert lost == child.LeaseLostInput()


def test_a_checkpoint_is_asked_for_and_waited_for():
    stored = encode(CheckpointResult("200", 3))
    assert serve(Recorder(checkpoint=("200", 3)), START, BATCH, stored)[1:] == [
        '{"action":"checkpoint","sequenceNumber":"200","subSequenceNumber":3}',
        status("processRecords"),
    ]


def test_a_refused_checkpoint_raises_its_name():
    refused = encode(CheckpointResult(None, None, "ThrottlingException"))
    with pytest.raises(child.CheckpointError, match="ThrottlingException") as caught:
        serve(Recorder(checkpoint=()), START, BATCH, refused)
    assert caught.value.value == "ThrottlingException"


def test_the_end_of_a_shard_is_checkpointed_unless_told_otherwise():
    assert serve(Recorder(), START, encode(ShardEnded()), STORED)[1:] == [
        '{"action":"checkpoint","sequenceNumber":null,"subSequenceNumber":null}',
        status("shardEnded"),
    ]


def test_an_exception_of_the_program_comes_out_and_no_status_is_written():
    class Failing(Recorder):
        def process_records(self, process_records_input):
            raise ZeroDivisionError

    out = io.BytesIO()
    with pytest.raises(ZeroDivisionError):
        child.run(Failing(), io.BytesIO(START + BATCH), out)
    assert out.getvalue().decode().splitlines() == [status("initialize")]


def test_a_checkpointer_is_dead_outside_its_callback():
    processor = Recorder()
    serve(processor, START, BATCH)
    with pytest.raises(LocalProtocolError, match="not possible in state CLOSED"):
        processor.kept.checkpoint()


@pytest.mark.parametrize("line", [b"\n", b"{}\n", BATCH, STORED, b'{"action":"shutdown"}\n'])
def test_a_line_that_no_daemon_would_send_ends_the_program(line):
    with pytest.raises(RemoteProtocolError):
        serve(Recorder(), line)


def test_the_end_of_stdin_inside_a_checkpoint_ends_the_program():
    with pytest.raises(RemoteProtocolError, match="before the checkpoint result"):
        serve(Recorder(checkpoint=()), START, BATCH)


def test_a_processor_must_say_what_to_do_with_records():
    class Idle(child.RecordProcessor):
        pass

    with pytest.raises(TypeError, match="process_records"):
        Idle()


def test_a_descriptor_is_kept_private_and_its_number_leads_elsewhere():
    public_read, public_write = os.pipe()
    other_read, other_write = os.pipe()
    private = child._take_over(public_write, other_write)
    os.write(private, b"protocol")
    os.write(public_write, b"print")
    assert os.read(public_read, 100) == b"protocol"
    assert os.read(other_read, 100) == b"print"
    for fd in (public_read, public_write, other_read, other_write, private):
        os.close(fd)


def test_descriptors_0_and_1_are_taken_over(monkeypatch):
    taken = []

    def take_over(fd, replacement):
        taken.append((fd, replacement))
        return os.dup(2)

    monkeypatch.setattr(child, "_take_over", take_over)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    child._own_stdin().close()
    child._own_stdout().close()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    child._own_stdout().close()
    assert [fd for fd, _ in taken] == [0, 1, 1]
    assert sys.stdout is not sys.__stdout__
    assert taken[1] == (1, 2)


PROGRAM = textwrap.dedent(
    """
    import os, subprocess, sys
    from kcl_mld_protocol import child

    class Noisy(child.RecordProcessor):
        def process_records(self, batch):
            print('{"action":"status","responseFor":"processRecords"}')
            sys.stdout.write("no end")
            subprocess.run(["echo", "from a subprocess"], check=True)
            subprocess.run(["cat"], check=True)  # must not eat the protocol
            if len(batch.records) > 1:
                raise ValueError("on purpose")

    child.run(Noisy())
    """
)


def spawn(*lines):
    root = os.path.dirname(os.path.dirname(kcl_mld_protocol.__file__))
    return subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=b"".join(lines),
        capture_output=True,
        timeout=30,
        check=False,
        env={**os.environ, "PYTHONPATH": root},
    )


def test_prints_of_the_program_and_its_subprocesses_stay_out_of_the_protocol():
    done = spawn(START, BATCH, BATCH, encode(LeaseLost()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode().splitlines() == [
        status("initialize"),
        status("processRecords"),
        status("processRecords"),
        status("leaseLost"),
    ]
    assert b"from a subprocess" in done.stderr
    assert b"no end" in done.stderr


def test_an_exception_ends_the_process_with_1_and_a_traceback():
    done = spawn(START, encode(ProcessRecords((RECORD, RECORD), 0)))
    assert done.returncode == 1
    assert b"ValueError: on purpose" in done.stderr
    assert done.stdout.decode().splitlines() == [status("initialize")]
