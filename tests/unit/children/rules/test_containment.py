"""Halving, attempts and dead letters, as decisions and as whole histories."""

import json
import random
from dataclasses import replace

import pytest

from kcl_mld.children.rules.containment import (
    LIMIT_WINDOW_MS,
    FailedLine,
    LetterFacts,
    Next,
    after_letter,
    cut,
    entries_of,
    is_over_limit,
    judge,
    letter,
    reason_of,
)
from kcl_mld.config.contain_config import ContainConfig
from kcl_mld.errors import ChildFailed, ChildReported, ChildTimedOut, ProcessorRaised
from kcl_mld.kernel.model.sequence import TRIM_HORIZON, ExtendedSequenceNumber as At
from kcl_mld.leases.model.containment import (
    NO_FAILURE,
    FailureNote,
    PositionRange,
    failure_of,
    skipped_behind,
    skipped_of,
)
from kcl_mld_protocol import ProcessRecords, Record
from kcl_mld_protocol.codec import encode

CONFIG = ContainConfig(destination="file:x")
DIED = ChildFailed("s", "processRecords", "it ended", 3)
FACTS = LetterFacts(
    application="app",
    stream_name="orders",
    stream_arn="arn",
    stream_created_at=5.0,
    shard_id="shardId-0",
    lease_key="shardId-0",
    worker_id="w1",
    lease_counter=7,
)
NOW = 1_000_000


def line_of(*positions, **fields):
    """A line of records; a position is a number or (number, sub)."""
    records = []
    for one in positions:
        number, sub = one if isinstance(one, tuple) else (one, 0)
        records.append(Record("YQ==", "ké\u2028y", str(number), number * 1000, sub, **fields))
    return encode(ProcessRecords(tuple(records), 5))


def numbers(line):
    return [int(one.sequence_number) for one in entries_of(line)]


def span(first, last):
    return PositionRange(At(str(first)), At(str(last)))


def judged(*positions, note=NO_FAILURE, checkpoint=TRIM_HORIZON, error=DIED, config=CONFIG, **more):
    failed = FailedLine(line_of(*positions), error, more.pop("before", checkpoint))
    return judge(failed, note, checkpoint, config, more.pop("attempts", 2), NOW)


# -- cutting


def test_a_line_is_cut_around_the_suspects_and_keeps_its_bytes():
    line = line_of(1, 2, 3, 4, 5)
    parts = cut(line, span(2, 3), ())
    assert [part.line for part in parts] == [line_of(1), line_of(2, 3), line_of(4, 5)]
    assert [part.largest for part in parts] == [At("1"), At("3"), At("5")]
    assert [part.line for part in cut(line, None, ())] == [line]


def test_what_is_dead_lettered_is_left_out():
    assert [part.line for part in cut(line_of(1, 2, 3), None, (span(2, 2),))] == [line_of(1, 3)]
    assert cut(line_of(1, 2), span(1, 1), (span(1, 9),)) == []


def test_user_records_of_one_aggregate_are_told_apart():
    line = line_of((7, 0), (7, 1), (7, 2), (8, 0))
    suspect = PositionRange(At("7", 1), At("7", 1))
    assert [part.line for part in cut(line, suspect, ())] == [
        line_of((7, 0)),
        line_of((7, 1)),
        line_of((7, 2), (8, 0)),
    ]
    assert [part.line for part in cut(line, None, (suspect,))] == [line_of((7, 0), (7, 2), (8, 0))]


# -- what follows a failure


def test_the_end_of_a_failed_batch_is_halved_without_an_attempt():
    found = judged(1, 2, 3, 4, 5)
    assert found.next is Next.HALVED
    assert found.note == FailureNote(span(1, 2), 0, NOW)
    assert judged(1, 2).note == FailureNote(span(1, 1), 0, NOW)


def test_attempts_count_at_a_single_record_until_they_are_used_up():
    note = FailureNote(span(1, 1), 0, 5)
    for attempt in (1, 2):
        found = judged(1, note=note)
        assert found.next is Next.ATTEMPT
        assert found.note == FailureNote(span(1, 1), attempt, 5)
        note = found.note
    found = judged(1, note=note)
    assert (found.next, found.note.attempts, found.reason) == (Next.LETTER, 3, "exit")
    assert judged(2, note=note).note == FailureNote(span(2, 2), 1, NOW)


def test_without_halving_the_whole_batch_is_tried_again():
    config = replace(CONFIG, bisects=False)
    found = judged(1, 2, 3, config=config, attempts=1)
    assert (found.next, found.note) == (Next.ATTEMPT, FailureNote(span(1, 3), 1, NOW))
    found = judged(1, 2, note=found.note, config=config, attempts=1)  # Kinesis cut it elsewhere
    assert (found.next, found.note) == (Next.LETTER, FailureNote(span(1, 2), 2, NOW))
    assert len(found.entries) == 2


def test_what_a_child_has_confirmed_inside_a_batch_is_not_suspected():
    assert judged(1, 2, 3, 4, 5, checkpoint=At("3")).note.suspects == span(4, 4)
    assert judged(1, 2, checkpoint=At("2")) is None


def test_a_child_may_name_the_record():
    error = ChildReported("s", "processRecords", "why", "3")
    found = judged(1, 2, 3, 4, error=error)
    assert (found.next, found.note.suspects, found.reason) == (Next.ATTEMPT, span(3, 3), "status")
    assert not found.may_checkpoint
    elsewhere = ChildReported("s", "processRecords", "why", "9")
    assert judged(1, 2, 3, 4, error=elsewhere).note.suspects == span(1, 2)
    unnamed = ChildReported("s", "processRecords", "why")
    assert judged(1, 2, 3, 4, error=unnamed).note.suspects == span(1, 2)
    sub = ChildReported("s", "processRecords", "why", "3", 1)
    found = judged((3, 0), (3, 1), error=sub)
    assert found.note.suspects == PositionRange(At("3", 1), At("3", 1))
    assert found.is_aggregated


def test_the_daemon_may_checkpoint_only_behind_what_the_child_has_checkpointed():
    assert judged(5, checkpoint=At("4"), before=At("4")).may_checkpoint
    assert not judged(5, checkpoint=At("3"), before=At("4")).may_checkpoint
    assert judged(4, 5, checkpoint=At("4"), before=At("3")).may_checkpoint


def test_old_records_get_no_further_attempts():
    config = replace(CONFIG, max_record_age_s=10.0)
    assert judged(1, config=config).next is Next.LETTER
    assert judged(1, config=config).reason == "age"
    assert judged(1, config=config, attempts=0).reason == "exit"
    assert judged(1, 2, config=config).next is Next.HALVED
    young = FailedLine(line_of(999), DIED, TRIM_HORIZON)
    assert judge(young, NO_FAILURE, TRIM_HORIZON, config, 2, NOW).next is Next.ATTEMPT
    undated = FailedLine(line_of(1).replace(b":1000", b":null"), DIED, TRIM_HORIZON)
    assert judge(undated, NO_FAILURE, TRIM_HORIZON, config, 2, NOW).next is Next.ATTEMPT


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DIED, "exit"),
        (ChildFailed("s", "p", "w", -9), "signal"),
        (ChildFailed("s", "p", "w"), "protocol"),
        (ChildTimedOut("s", "p", "w"), "timeout"),
        (ProcessorRaised("s", "p", "w"), "exception"),
        (ChildReported("s", "p", "w"), "status"),
    ],
)
def test_reasons(error, reason):
    assert reason_of(error) == reason


def test_letters_count_for_five_minutes():
    note = FailureNote(span(1, 1), 3, NOW, letters_ms=(NOW - LIMIT_WINDOW_MS, NOW - 1))
    assert is_over_limit(note, 1)
    assert not is_over_limit(note, 2)
    assert after_letter(note, NOW) == FailureNote(letters_ms=(NOW - 1, NOW))


def test_the_time_of_attempts_ages_no_letter():
    written = (NOW - LIMIT_WINDOW_MS - 2_000, NOW - LIMIT_WINDOW_MS, NOW - 5_000)
    slow = FailedLine(line_of(1), DIED, TRIM_HORIZON, took_ms=1_000)
    note = FailureNote(letters_ms=written)
    note = judge(slow, note, TRIM_HORIZON, CONFIG, 2, NOW).note
    assert note.letters_ms == tuple(one + 1_000 for one in written)
    hour_later = NOW + 3_600_000
    note = judge(slow, note, TRIM_HORIZON, CONFIG, 2, hour_later).note
    assert (note.since_ms, note.letters_ms[2]) == (NOW, NOW - 4_000)
    assert is_over_limit(note, 2)
    assert not is_over_limit(note, 3)
    left = tuple(one + 3_601_000 for one in written[1:])
    assert after_letter(note, hour_later) == FailureNote(letters_ms=(*left, hour_later))


def test_a_clock_that_goes_back_ages_no_letter():
    note = FailureNote(span(1, 1), 1, NOW, letters_ms=(NOW - 1,))
    assert after_letter(note, NOW - 500).letters_ms == (NOW - 1, NOW - 500)


# -- the document


def test_a_document_says_all_but_the_payload():
    failed = FailedLine(line_of((7, 0), (7, 1), schema_version_id="v"), DIED, TRIM_HORIZON)
    found = judge(failed, NO_FAILURE, TRIM_HORIZON, replace(CONFIG, bisects=False), 0, NOW)
    assert letter(FACTS, failed, found, NOW + 1, with_records=False) == {
        "version": 1,
        "id": FACTS.letter_id(found.note.suspects),
        "application": "app",
        "streamName": "orders",
        "streamArn": "arn",
        "streamCreatedAt": 5.0,
        "shardId": "shardId-0",
        "leaseKey": "shardId-0",
        "firstSequenceNumber": "7",
        "firstSubSequenceNumber": 0,
        "lastSequenceNumber": "7",
        "lastSubSequenceNumber": 1,
        "recordCount": 2,
        "aggregated": True,
        "firstArrivalMillis": 7000,
        "lastArrivalMillis": 7000,
        "reason": "exit",
        "message": "it ended",
        "exitCode": 3,
        "signal": None,
        "attempts": 1,
        "firstFailedAtMillis": NOW,
        "deadLetteredAtMillis": NOW + 1,
        "workerId": "w1",
        "leaseCounter": 7,
        "schemaVersionId": "v",
    }


def test_records_and_stderr_are_there_only_if_asked_for():
    killed = ChildFailed("s", "processRecords", "it ended", -9)
    failed = FailedLine(line_of(1, 2), killed, TRIM_HORIZON, stderr="Traceback")
    found = judge(failed, FailureNote(span(1, 1)), At("1"), CONFIG, 0, NOW)
    document = letter(FACTS, failed, found, NOW, with_records=True)
    assert (document["exitCode"], document["signal"]) == (None, 9)
    assert document["stderrTail"] == "Traceback"
    assert document["records"] == json.loads(line_of(2))["records"]
    assert document["schemaVersionId"] is None


def test_an_id_is_of_the_records_alone():
    one = FACTS.letter_id(span(1, 2))
    assert one == replace(FACTS, worker_id="w2", lease_counter=9).letter_id(span(1, 2))
    assert len({one, FACTS.letter_id(span(1, 3)), FACTS.letter_id(span(2, 2)),
                replace(FACTS, stream_created_at=6.0).letter_id(span(1, 2)),
                replace(FACTS, application="b").letter_id(span(1, 2))}) == 5  # fmt: skip
    assert len(one) == 64


# -- whole histories


class History:
    """Children of one shard, some of whose records are poison; owners come and go."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.count = self.rng.randrange(1, 60)
        self.poison = {n for n in range(1, self.count + 1) if self.rng.random() < 0.08}
        self.batch = self.rng.randrange(1, 30)
        self.checkpoint_share = self.rng.choice((0.0, 0.3, 1.0))
        self.config = replace(CONFIG, bisects=self.rng.random() < 0.8)
        self.checkpoint = TRIM_HORIZON
        self.note, self.skipped = NO_FAILURE, ()
        self.processed: set[int] = set()
        self.letters: set[int] = set()
        self.children = 0

    def live(self) -> None:
        """One child, until it fails or the shard is read."""
        self.children += 1
        assert self.children < 2000
        begun = 0 if self.checkpoint.sentinel else int(self.checkpoint.sequence_number)
        given, at = self.checkpoint, begun + 1
        while at <= self.count:
            size = self.rng.randrange(1, self.batch + 1)
            line = line_of(*range(at, min(at + size, self.count + 1)))
            at += size
            suspects = self.note.behind(self.checkpoint).suspects
            for part in cut(line, suspects, self.skipped):
                positions = [one.position for one in entries_of(part.line)]
                assert not any(one.holds(where) for one in self.skipped for where in positions)
                before, given = given, part.largest
                if self.poison.intersection(numbers(part.line)):
                    self.fail(part.line, before)
                    return
                self.processed.update(numbers(part.line))
                if self.note.suspects and self.note.suspects.last <= part.largest:
                    self.note = FailureNote(letters_ms=self.note.letters_ms)
                if self.rng.random() < self.checkpoint_share:
                    self.store(part.largest)
        self.store(At(str(self.count)))

    def store(self, position: At) -> None:
        self.checkpoint = position
        self.note = self.note.behind(position)
        self.skipped = skipped_behind(self.skipped, position)

    def fail(self, line: bytes, before: At) -> None:
        failed = FailedLine(line, DIED, before)
        found = judge(failed, self.note, self.checkpoint, self.config, 1, NOW)
        assert found is not None
        if self.rng.random() < 0.1:
            return  # killed before anything was noted
        self.note = found.note
        if found.next is Next.LETTER:
            kept = {int(one.sequence_number) for one in found.entries}
            self.letters |= kept
            if self.rng.random() < 0.1:
                return  # killed before the skip was stored
            suspects = found.note.suspects
            assert suspects is not None
            self.skipped = (*self.skipped, suspects)
            self.note = after_letter(self.note, NOW)
            if found.may_checkpoint:
                assert all(
                    n in self.processed or n in self.letters
                    for n in range(1, int(suspects.last.sequence_number) + 1)
                )
                self.store(suspects.last)
        # The next owner knows what the row says.
        self.note = failure_of(self.note.text())
        self.skipped = skipped_of(tuple(map(str, self.skipped)))


@pytest.mark.parametrize("first", range(0, 400, 100))
def test_each_record_is_processed_or_a_dead_letter_whatever_happens(first):
    for seed in range(first, first + 100):
        history = History(seed)
        while history.checkpoint != At(str(history.count)):
            history.live()
        everything = set(range(1, history.count + 1))
        assert history.processed | history.letters == everything, seed
        if history.config.bisects:
            assert history.letters == history.poison, seed
