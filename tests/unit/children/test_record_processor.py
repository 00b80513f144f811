"""One child: exchanges, checkpoints on the way, failures, and its end."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from kcl_mld.children.child_log import BURST_LINES, MAX_LINE_BYTES
from kcl_mld.children.model.child_name import ChildName
from kcl_mld.children.record_processor import OutgoingLine, RecordProcessor
from kcl_mld.config.config import ChildConfig, ChildFailurePolicy
from kcl_mld.errors import ChildFailed, ChildTimedOut
from kcl_mld.kernel.model.sequence import TRIM_HORIZON
from tests.fakes.children import ScriptedChildren, polite
from tests.fakes.clock import LoopClock
from tests.sim.loop import run

BATCH = b'{"action":"processRecords","records":[],"millisBehindLatest":null}\n'


class Answers:
    """A checkpointer that answers from a list, None when it is empty."""

    def __init__(self, *names):
        self.names = list(names)
        self.asked = []

    async def checkpoint(self, sequence_number, sub_sequence_number):
        self.asked.append((sequence_number, sub_sequence_number))
        return self.names.pop(0) if self.names else None


class Talking:
    """A processor whose child runs a script."""

    def __init__(self, script=polite, *names, index=None, **config):
        self.children = ScriptedChildren(script)
        self.checkpointer = Answers(*names)
        self.written = 0
        self.exceptions = []
        self.exception = None
        settings = {"eof_grace_s": 10.0, "term_grace_s": 5.0} | config
        self.processor = RecordProcessor(
            ChildName("shard-1", index),
            ChildConfig(**{"argv": ("app", "--x")} | settings),
            self.children,
            self.checkpointer,
            LoopClock(),
            {"KCL_SHARD_ID": "shard-1"},
            on_exception=self.on_exception,
        )

    @property
    def child(self):
        return self.children.children[0]

    def on_exception(self, action, said):
        self.exceptions.append((str(action), said))
        if self.exception is not None:
            raise self.exception

    def on_written(self):
        self.written += 1

    async def process(self, line=BATCH):
        await self.processor.process(OutgoingLine(line, self.on_written))


def talking(test, script=polite, *names, **config):
    async def main():
        world = Talking(script, *names, **config)
        async with asyncio.TaskGroup() as world.group:
            await test(world)
            await world.processor.stop()
        if world.children.children:
            assert world.child.status is not None
        return world

    return run(main())


def answering(**extras):
    """A script that does something extra before it answers an action."""

    async def script(child):
        while (message := await child.receive()) is not None:
            extra = extras.get(message["action"])
            if extra is not None and await extra(child, message) is not None:
                return 4
            await child.answer(message)
        return 0

    return script


def test_a_whole_life():
    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        assert world.processor.pid == 1000
        assert world.processor.may_talk
        await world.process()
        assert world.written == 1
        assert await world.processor.shutdown_requested()
        await world.processor.lease_lost()
        assert not world.processor.may_talk
        await world.processor.stop()
        assert world.processor.pid is None
        assert world.child.status == 0
        assert world.child.signals == []
        assert world.checkpointer.asked == [(None, None), (None, None)]

    talking(test)


def test_checkpoint_results_echo_what_was_asked():
    async def asks(child, _message):
        for number, sub in (("150", None), (None, None), (160, 2), ("1", -1)):
            await child.say(action="checkpoint", sequenceNumber=number, subSequenceNumber=sub)
            await child.receive()

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        results = [one for one in world.child.heard if one["action"] == "checkpoint"]
        assert [
            (one["sequenceNumber"], one["subSequenceNumber"], one["error"]) for one in results
        ] == [
            ("150", None, None),
            (None, None, "ThrottlingException"),
            ("160", 2, None),
            ("1", -1, None),
        ]
        assert world.checkpointer.asked == [("150", None), (None, None), ("160", 2), ("1", -1)]

    talking(test, answering(processRecords=asks), None, "ThrottlingException")


@pytest.mark.parametrize("action", ["initialize", "leaseLost"])
def test_actions_without_a_checkpointer_say_so(action):
    errors = []

    async def asks(child, _message):
        errors.append(await child.checkpoint("1"))

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.processor.lease_lost()
        assert errors == ["InvalidStateException"]
        assert world.checkpointer.asked == []

    talking(test, answering(**{action: asks}))


@pytest.mark.parametrize(
    ("said", "status", "told"),
    [
        ([b"Traceback (most recent call last):", b"ValueError: no", b" "], 1, "ValueError: no"),
        (
            [b"it cannot write to https://me:hidden@host/"],
            69,
            "it cannot write to https://****@host/",
        ),
        (
            [b'Exception in thread "main" java.lang.Error: a', b"\tat b.C.d(C.java:1)", b">"],
            1,
            'Exception in thread "main" java.lang.Error: a',
        ),
        ([b"\x1b[31m" + b"x" * 999], 2, "\\x1b[31m" + "x" * 491 + "…"),
    ],
)
def test_what_a_failing_child_said_last_is_in_the_error(said, status, told):
    async def dies(child):
        await child.receive()
        for line in said:
            child.stderr(line)
        return status

    async def test(world):
        with pytest.raises(ChildFailed) as caught:
            await world.processor.initialize(world.group, TRIM_HORIZON)
        words = f"before it answered initialize; its stderr: {told} (exit status {status})"
        assert str(caught.value).endswith(words)

    talking(test, dies)


@pytest.mark.parametrize("status", [0, -9])
def test_a_child_that_was_killed_or_ended_well_had_no_last_words(status):
    async def dies(child):
        child.stderr(b"all is fine")
        return status

    async def test(world):
        with pytest.raises(ChildFailed) as caught:
            await world.processor.initialize(world.group, TRIM_HORIZON)
        assert "fine" not in str(caught.value)

    talking(test, dies)


def test_what_is_no_message_goes_to_the_log(caplog):
    caplog.set_level(logging.INFO)

    async def chatters(child, _message):
        await child.print(b"hello")
        await child.print(b"")
        await child.print(b'{"action":"leaseLost"}')
        child.stderr(b"oops")

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)

    talking(test, answering(initialize=chatters))
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "shard-1 stdout: hello (not JSON)" in text
    assert "shard-1 stderr: oops" in text
    pids = [record.pid_of_child for record in caplog.records if hasattr(record, "pid_of_child")]
    assert pids == [1000, 1000]


def test_one_of_several_children_is_called_by_its_index(caplog):
    caplog.set_level(logging.INFO)
    told = []

    async def dies(child):
        told.append(await child.receive())
        child.stderr(b"oops")
        return 3

    async def test(world):
        with pytest.raises(ChildFailed, match=r"^shard-1/3: child failed at initialize"):
            await world.processor.initialize(world.group, TRIM_HORIZON)

    talking(test, dies, index=3)
    assert [message["shardId"] for message in told] == ["shard-1"]
    said = {record.getMessage(): record for record in caplog.records}
    assert {
        "shard-1/3: started child 1000 at TRIM_HORIZON",
        "shard-1/3 stderr: oops",
        "shard-1/3: child 1000 exited with status 3",
    } <= said.keys()
    stray = said["shard-1/3 stderr: oops"]
    assert (stray.shard_id, stray.child_index, stray.pid_of_child) == ("shard-1", 3, 1000)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            b'{"action":"checkpoint","sequenceNumber":"1","subSequenceNumber":"x"}',
            (
                "this checkpoint message cannot be read, field 'subSequenceNumber' is not a whole number;"
                " it gets no answer"
            ),
        ),
        (
            b'{"action":"status","responseFor":"processRecords","took":3}',
            (
                "this status message cannot be read, unknown field 'took';"
                " the daemon still waits for one"
            ),
        ),
    ],
)
def test_a_message_that_cannot_be_read_is_a_warning_with_shard_and_field(caplog, line, told):
    async def misspells(child, _message):
        await child.print(line)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        assert world.checkpointer.asked == []  # as in Java

    talking(test, answering(processRecords=misspells))
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert warning.getMessage() == f"shard-1 stdout: {line.decode()} (ignored: {told})"


def test_long_lines_are_cut_and_floods_are_counted(caplog):
    caplog.set_level(logging.INFO)

    async def floods(child, _message):
        child.stderr(b"y" * (MAX_LINE_BYTES + 7))
        for _ in range(BURST_LINES * 3):
            await child.print(b"x" * 100)
        await asyncio.sleep(60)
        child.stderr(b"after")

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)

    talking(test, answering(initialize=floods))
    messages = [record.getMessage() for record in caplog.records]
    assert any(one.endswith("y [7 bytes more]") for one in messages)
    assert sum("stdout: xxx" in one for one in messages) <= BURST_LINES
    assert any("the child (pid 1000) prints more than" in one for one in messages)
    assert messages.index("shard-1 stderr: after") > 0


def test_a_large_line_and_a_chatty_child_do_not_block_each_other():
    async def prints_first(child):
        message = await child.receive()
        await child.answer(message)
        for _ in range(3000):
            await child.print(b"x" * 100)
        message = await child.receive()
        await child.answer(message)
        return 0

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        line = json.dumps({"action": "processRecords", "x": "y" * 1_000_000}).encode() + b"\n"
        await world.process(line)
        assert world.written == 1

    talking(test, prints_first)


def test_the_wrong_status_fails_the_action():
    async def wrong(child, _message):
        await child.say(action="status", responseFor="initialize")

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed, match="instead of processRecords"):
            await world.process()

    talking(test, answering(processRecords=wrong))


def test_a_child_that_ends_fails_the_action_with_its_status():
    async def leaves(_child, _message):
        return 4

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed) as failed:
            await world.process()
        assert failed.value.child_exit_code == 4
        assert failed.value.shard_id == "shard-1"

    talking(test, answering(processRecords=leaves))


ADVICE = ". Children for the 1.x protocol do not know {}: use amazon_kclpy (or aws-kcl) 2 or later"


@pytest.mark.parametrize(
    ("action", "status", "has_advice"),
    [
        ("shardEnded", 1, True),
        ("leaseLost", 1, True),
        ("leaseLost", 0, True),
        ("leaseLost", None, True),  # it ignores the message
        ("shardEnded", -9, False),
        ("processRecords", 1, False),
    ],
)
@pytest.mark.parametrize("program", ["app", "kcl-mld-spark"])
def test_a_child_that_does_not_know_the_end_of_a_lease_fails_with_advice(
    action, status, has_advice, program
):
    async def leaves(child):
        while (message := await child.receive()) is not None and message["action"] != action:
            await child.answer(message)
        if status is None:
            await asyncio.Event().wait()
        return status

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        exchange = {
            "processRecords": world.process,
            "shardEnded": world.processor.shard_ended,
            "leaseLost": world.processor.lease_lost,
        }[action]
        with pytest.raises(ChildFailed) as failed:
            await exchange()
        assert failed.value.action == action
        text = str(failed.value)
        assert text.endswith(ADVICE.format(action)) is (has_advice and program == "app")
        assert ("1.x" in text) is (has_advice and program == "app")

    talking(test, leaves, argv=(program,), answer_timeout_s=60.0)


@pytest.mark.parametrize("answer", ["wrong", "failure"])
def test_an_answer_to_the_end_of_a_lease_gets_no_such_advice(answer):
    async def answers(child):
        await child.answer(await child.receive())
        await child.receive()
        if answer == "wrong":
            await child.say(action="status", responseFor="initialize")
        else:
            await child.say(action="status", responseFor="leaseLost", failure="no disk")
        await child.receive()
        return 0

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed) as failed:
            await world.processor.lease_lost()
        assert "1.x" not in str(failed.value)

    talking(test, answers, failure_policy=ChildFailurePolicy.DEADLETTER)


def test_a_child_that_closes_its_stdout_and_lives_fails_too():
    async def closes(child, _message):
        child.stdout.close()
        await asyncio.sleep(1000)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed) as failed:
            await world.process()
        assert failed.value.child_exit_code is None
        await world.processor.stop()
        assert world.child.signals == ["TERM"]

    talking(test, answering(processRecords=closes))


def test_a_surplus_status_answers_the_next_action_as_in_java():
    async def twice(child, message):
        await child.say(action="status", responseFor="initialize")
        await child.say(action="status", responseFor="processRecords")
        await child.receive()
        await asyncio.sleep(1000)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()

    talking(test, answering(initialize=twice))


def test_a_correct_status_does_not_make_up_for_a_closed_stdin():
    async def deaf(child):
        await child.answer(await child.receive())
        child.stdin.break_off()
        await child.say(action="status", responseFor="processRecords")
        await asyncio.sleep(1000)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed, match="stdin cannot be written"):
            await world.process()
        assert world.written == 1

    talking(test, deaf)


@pytest.mark.parametrize("asks_first", [False, True])
def test_a_child_that_closed_its_stdin_and_lives_on_fails_although_nothing_limits_its_answer(
    asks_first,
):
    async def closes(child):
        message = await child.receive()
        child.stdin.changed.clear()
        await child.answer(message)
        await child.stdin.changed.wait()
        if asks_first:
            await child.say(action="checkpoint", sequenceNumber="1")
        child.stdin.break_off()
        await asyncio.Event().wait()

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        began = asyncio.get_running_loop().time()
        with pytest.raises(ChildFailed, match="cannot be written"):
            await world.process(BATCH[:-1] + b" " * 200_000 + b"\n")
        assert asyncio.get_running_loop().time() - began < 1

    assert talking(test, closes, eof_grace_s=0.1).child.signals == ["TERM"]


def test_a_line_that_breaks_off_after_the_end_of_stdout_fails_the_child_alone():
    """The time for an answer was over by then, and to move it raised: the worker ended."""

    async def dies(child):
        await child.answer(await child.receive())
        await child.stdin.changed.wait()
        child.stdout.close()
        await asyncio.sleep(0.01)
        child.stdin.break_off()
        await asyncio.sleep(0.01)
        return 9

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed) as failed:
            await world.process(BATCH[:-1] + b" " * 200_000 + b"\n")
        assert failed.value.child_exit_code == 9

    talking(test, dies)


def test_a_checkpoint_result_that_cannot_be_written_fails_the_action():
    async def asks_and_leaves(child, _message):
        await child.say(action="checkpoint", sequenceNumber=None, subSequenceNumber=None)
        child.stdin.break_off()
        await asyncio.sleep(1000)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed, match="result cannot be written"):
            await world.process()

    talking(test, answering(processRecords=asks_and_leaves))


def test_junk_does_not_extend_the_time_to_answer_but_messages_do():
    async def busy(child, _message):
        for _ in range(3):
            await asyncio.sleep(4)
            await child.checkpoint()

    async def babbles(child, _message):
        while True:
            await asyncio.sleep(1)
            await child.print(b"working on it")

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        began = asyncio.get_running_loop().time()
        with pytest.raises(ChildTimedOut, match="no answer within 5"):
            await world.processor.shard_ended()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1)

    talking(test, answering(processRecords=busy, shardEnded=babbles), answer_timeout_s=5.0)


def test_a_daemon_that_stood_still_does_not_blame_the_child(caplog):
    async def while_we_stand_still(child, message):
        asyncio.get_running_loop()._now_s += 100
        await asyncio.sleep(0.01)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        assert "suspended for 90 s" in caplog.text

    script = answering(processRecords=while_we_stand_still)
    talking(test, script, answer_timeout_s=10.0)


def test_a_line_that_nobody_reads_times_out_even_if_it_was_answered():
    async def answers_blindly(child):
        await child.answer(await child.receive())
        await child.say(action="status", responseFor="processRecords")
        await asyncio.sleep(1000)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildTimedOut):
            await world.process(b"x" * 1_000_000 + b"\n")
        assert world.written == 1

    talking(test, answers_blindly, answer_timeout_s=5.0)


def test_a_slow_child_is_warned_about_again_and_again(caplog):
    async def slow(_child, _message):
        await asyncio.sleep(10)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)

    talking(test, answering(initialize=slow), warn_after_s=3.0)
    warnings = [one.getMessage() for one in caplog.records if "has been busy" in one.getMessage()]
    assert len(warnings) == 3
    assert "initialize for 3.0 s" in warnings[0]


def test_a_failed_shutdown_notice_is_survived():
    async def wrong(child, _message):
        await child.say(action="status", responseFor="initialize")
        await child.receive()
        await child.say(action="status", responseFor="leaseLost")

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        assert not await world.processor.shutdown_requested()
        assert world.processor.may_talk
        await world.processor.lease_lost()

    talking(test, answering(shutdownRequested=wrong))


def test_a_hanging_shutdown_notice_is_not():
    async def hangs(_child, _message):
        await asyncio.sleep(1000)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildTimedOut):
            await world.processor.shutdown_requested()

    talking(test, answering(shutdownRequested=hangs), answer_timeout_s=5.0)


def test_a_program_that_cannot_be_started_is_named():
    async def test(world):
        world.children.refuses = FileNotFoundError(2, "No such file or directory")
        with pytest.raises(ChildFailed, match="cannot start 'app --x'"):
            await world.processor.initialize(world.group, TRIM_HORIZON)
        assert world.processor.pid is None
        world.processor.kill()

    talking(test)


def test_a_processor_without_a_child_has_nobody_to_talk_to():
    async def test(world):
        with pytest.raises(RuntimeError, match="not started"):
            world.processor._running()

    talking(test)


@pytest.mark.parametrize(
    ("ignores_term", "signals", "seconds", "status"),
    [(False, ["TERM"], 10, -15), (True, ["TERM", "KILL"], 15, -9)],
)
def test_a_child_that_ignores_the_end_of_its_input_is_ended(ignores_term, signals, seconds, status):
    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        world.child.ignores_eof = True
        world.child.ignores_term = ignores_term
        began = asyncio.get_running_loop().time()
        await world.processor.stop()
        assert asyncio.get_running_loop().time() - began == pytest.approx(seconds, abs=1.1)
        assert world.child.signals == signals
        assert world.child.status == status

    talking(test)


def test_what_a_child_leaves_behind_does_not_block_the_stop():
    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        world.child.holds_stdout = True
        await world.processor.stop()
        assert world.child.status == 0
        assert world.child.signals == ["KILL"]

    talking(test)


def test_the_rest_of_stdout_is_logged(caplog):
    caplog.set_level(logging.INFO)

    async def last_words(child):
        await child.answer(await child.receive())
        assert await child.receive() is None
        await child.print(b"goodbye")
        return 0

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)

    talking(test, last_words)
    assert any("stdout: goodbye" in record.getMessage() for record in caplog.records)


def test_a_cancelled_stop_kills():
    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        world.child.ignores_eof = True
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(world.processor.stop())
            await asyncio.sleep(1)
            stopping.cancel()
        assert world.child.signals == ["KILL"]

    talking(test)


def test_a_line_can_be_taken_once():
    outgoing = OutgoingLine(b"x\n", lambda: None)
    assert outgoing.take() == b"x\n"
    assert outgoing.line is None
    with pytest.raises(ValueError, match="taken"):
        outgoing.take()


STATUS = b'{"action":"status","responseFor":"processRecords"}'


def test_a_reply_that_is_not_read_times_out():
    async def asks_and_does_not_read(child, _message):
        for _ in range(3000):
            await child.say(action="checkpoint", sequenceNumber="1", subSequenceNumber=None)
        await asyncio.sleep(1000)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        began = asyncio.get_running_loop().time()
        with pytest.raises(ChildTimedOut, match=r"it has not read its input for 5\.0 s"):
            await world.process()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1)

    talking(test, answering(processRecords=asks_and_does_not_read), answer_timeout_s=5.0)


def test_an_exception_that_kclpy_caught_is_told_before_the_status_counts():
    async def raises(child, _message):
        # In one piece with what stands before, as a progress bar, and in the pipe still.
        child.unread_stderr += [
            b"50 %Caught exception from action dispatch: boomTraceback (most recent call last):",
            b'  File "app.py", line 3, in process_records',
            b"ValueError: boom",
        ]

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        assert world.exceptions == [("processRecords", "ValueError: boom")]
        await world.processor.shutdown_requested()
        assert len(world.exceptions) == 1

    talking(test, answering(processRecords=raises))


def test_what_is_done_about_an_exception_may_fail_the_action():
    async def raises(child, _message):
        child.stderr(b"Caught exception from action dispatch: boom")

    async def test(world):
        world.exception = ChildFailed("shard-1", "processRecords", "its processor raised")
        await world.processor.initialize(world.group, TRIM_HORIZON)
        with pytest.raises(ChildFailed, match="its processor raised"):
            await world.process()

    talking(test, answering(processRecords=raises))


def test_a_child_that_does_not_answer_for_a_minute_is_warned_about_once(caplog):
    async def slow(child, _message):
        await asyncio.sleep(50)
        await child.say(action="leaseLost")  # a keep-alive
        await asyncio.sleep(200)

    async def test(world):
        processor = world.processor
        assert processor.silent_s is processor.silence_cause is None
        await processor.initialize(world.group, TRIM_HORIZON)
        for _ in range(2):
            processing = asyncio.create_task(world.process())
            await asyncio.sleep(49)
            assert processor.silent_s == pytest.approx(49)
            await asyncio.sleep(21)
            assert processor.silent_s == pytest.approx(20)
            await processing
            assert processor.silent_s is None

    talking(test, answering(processRecords=slow))
    told = [one.getMessage() for one in caplog.records if "has not answered" in one.getMessage()]
    assert told == ["shard-1: the child (pid 1000) has not answered processRecords for 60 s"] * 2


GLUED = [
    (b"done" + STATUS, "a message behind other output"),
    (b'{"action":"leaseLost"}' + STATUS, "a second message on one line"),
]


@pytest.mark.parametrize(("line", "told"), GLUED)
def test_a_glued_message_is_a_warning_at_once_and_the_cause_of_a_silence(caplog, line, told):
    async def glues(child, _message):
        await child.print(line)
        await asyncio.sleep(70)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        processing = asyncio.create_task(world.process())
        await asyncio.sleep(1)
        (warning,) = [one for one in caplog.records if one.levelname == "WARNING"]
        assert told in warning.getMessage()
        assert world.processor.silence_cause is None
        await asyncio.sleep(65)
        assert told in world.processor.silence_cause
        await processing
        assert world.processor.silence_cause is None
        await world.process()  # a copy for people, perhaps: not another warning
        assert [told in one.getMessage() for one in caplog.records].count(True) == 3

    talking(test, answering(processRecords=glues))


@pytest.mark.parametrize(("line", "_told"), GLUED)
def test_a_glued_status_is_taken_after_five_seconds_where_the_file_says_so(line, _told, caplog):
    async def glues(child):
        await child.answer(await child.receive())
        await child.receive()
        await child.print(line)
        for _ in range(7):
            await asyncio.sleep(1)
            await child.print(b"no message")
        assert (await child.receive())["action"] == "leaseLost"
        await child.say(action="status", responseFor="leaseLost")

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        began = asyncio.get_running_loop().time()
        await world.process()
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.1)
        assert "accepted a status that follows other output on its line" in caplog.text
        await world.processor.lease_lost()

    talking(test, glues, recovers_glued=True)


def test_a_glued_status_is_not_taken_when_another_message_follows_in_time():
    async def logs_copies(child, _message):
        await child.print(b"sent " + STATUS)
        await asyncio.sleep(4)
        await child.checkpoint()
        await asyncio.sleep(60)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        began = asyncio.get_running_loop().time()
        await world.process()
        assert asyncio.get_running_loop().time() - began == pytest.approx(64, abs=0.1)

    talking(test, answering(processRecords=logs_copies), recovers_glued=True)


def test_a_glued_checkpoint_is_never_taken():
    async def glues(child, _message):
        await child.print(b'done {"action":"checkpoint","sequenceNumber":"1"}')
        await asyncio.sleep(30)

    async def test(world):
        await world.processor.initialize(world.group, TRIM_HORIZON)
        await world.process()
        assert world.checkpointer.asked == []

    talking(test, answering(processRecords=glues), recovers_glued=True)
