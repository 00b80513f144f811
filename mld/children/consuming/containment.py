"""Isolates the records that a shard's children fail on: ``childFailurePolicy = deadletter``.

The lease's row holds the suspects and their attempts, so that they survive a change of the owner. A
record is skipped only after its dead letter is stored.
"""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from kcl_mld.children.rules.containment import (
    FailedLine,
    FailureJudgement,
    LetterFacts,
    LinePart,
    Next,
    after_letter,
    cut,
    is_over_limit,
    judge,
    letter,
)
from kcl_mld.children.rules.lifecycle import CAP_S
from kcl_mld.errors import AwsError, LeaseLost, LetterRefused, ThreadRefused
from kcl_mld.kernel.model.text import counted
from kcl_mld.kernel.rules.backoff import backoff_s
from kcl_mld.leases.model.containment import (
    MOST_SKIPPED,
    FailureNote,
    PositionRange,
    skipped_behind,
)
from kcl_mld.signals.model.metrics import DEAD_LETTERED, PASSED_DEAD_LETTER, SHARD_HELD

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.children.ports import LetterStore
    from kcl_mld.children.rules.delivery import Delivery
    from kcl_mld.config.contain_config import ContainConfig

log = logging.getLogger("mld.children")

#: Seconds between two log lines about a shard on hold.
HELD_EVERY_S = 60.0


class Containment:
    """Containment for one hold of a lease."""

    def __init__(
        self, context: ConsumerContext, config: ContainConfig, letters: LetterStore
    ) -> None:
        """Continue from the previous owner's state; a shard that was on hold is tried again."""
        self._context = context
        self._config = config
        self._letters = letters
        self._clock = context.parts.runtime.clock
        self._note = context.held.lease.failure.lifted()
        self._is_row_held = context.held.lease.failure.held is not None
        self._skipped = context.held.lease.skipped
        #: Why the shard is on hold, for operators.
        self.held: str | None = None

    @property
    def attempts(self) -> int:
        """How often children failed on the suspects."""
        return self._note.behind(self._context.checkpointer.last).attempts

    # -- what the child is given ---------------------------------------------------------------

    def parts(self, line: bytes, delivery: Delivery) -> list[LinePart]:
        """Split a line of records into the lines to send."""
        smallest, largest = delivery.smallest, delivery.largest
        if smallest is None or largest is None:
            raise ValueError("a line without records is not cut")
        checkpoint = self._context.checkpointer.last
        self._skipped = skipped_behind(self._skipped, checkpoint)
        suspects = self._note.behind(checkpoint).suspects
        if suspects is not None and (suspects.last < smallest or largest < suspects.first):
            suspects = None
        skipped = [one for one in self._skipped if one.last >= smallest and one.first <= largest]
        if suspects is None and not skipped:
            return [LinePart(line, largest)]
        return cut(line, suspects, skipped)

    async def passed(self, part: LinePart) -> None:
        """The child has answered: the suspects in this part did not cause a failure this time."""
        suspects = self._note.suspects
        if suspects is not None and suspects.last <= part.largest:
            self._note = FailureNote(letters_ms=self._note.letters_ms)
            if self._is_row_held:  # else they would be reported until the next checkpoint
                self._is_row_held = False
                await self._store_note()

    # -- after a failure -----------------------------------------------------------------------

    def judge(self, failed: FailedLine) -> FailureJudgement | None:
        """What follows a failure; None = no record caused it."""
        return judge(
            failed,
            self._note,
            self._context.checkpointer.last,
            self._config,
            self._context.parts.config.child.restart_attempts,
            self._now_ms(),
        )

    async def settle(self, failed: FailedLine, judged: FailureJudgement) -> float | None:
        """Store the failure, and dead-letter records that have used up their attempts.

        Returns:
            Seconds until the next child; None = the shard is being given up.
        """
        context, child = self._context, self._context.parts.config.child
        self._note = judged.note
        suspects = judged.note.suspects
        pause_s: float | None = child.restart_backoff_s
        match judged.next:
            case Next.HALVED:
                log.warning(
                    "%s: the failed batch is halved; records %s are suspected",
                    context.shard_id,
                    suspects,
                )
                await self._store_note()
            case Next.ATTEMPT:
                text = "%s: attempt %d of %d at records %s has failed"
                attempts, most = judged.note.attempts, child.restart_attempts + 1
                log.warning(text, context.shard_id, attempts, most, suspects)
                await self._store_note()
                pause_s = backoff_s(
                    attempts - 1,
                    context.parts.runtime.rng,
                    first_s=child.restart_backoff_s,
                    cap_s=max(CAP_S, child.restart_backoff_s),
                )
            case Next.LETTER:
                if not await self._set_aside(failed, judged):
                    return None
        return pause_s

    async def _set_aside(self, failed: FailedLine, judged: FailureJudgement) -> bool:
        """Store a dead letter, then skip its record.

        False when the shard was given up meanwhile.
        """
        context, limit = self._context, self._config.limit
        if is_over_limit(self._note, limit):
            return await self._hold(
                f"it had {counted(limit, 'dead letter', 'dead letters')} within five minutes, the time of"
                f" attempts not counted, and one of records {self._note.suspects} would be the next"
            )
        if not judged.may_checkpoint and len(self._skipped) >= MOST_SKIPPED:
            return await self._hold(
                f"{MOST_SKIPPED} records are dead letters that no checkpoint of the child covers, and"
                f" records {self._note.suspects} would be the next"
            )
        first, last = judged.entries[0].position, judged.entries[-1].position
        facts, suspects = self._facts(), PositionRange(first, last)
        letter_id = facts.letter_id(suspects)
        document = letter(
            facts, failed, judged, self._now_ms(), with_records=self._config.with_records
        )
        text = json.dumps(document).encode()  # in ASCII: a queue refuses some characters

        keep = partial(self._put, letter_id, text)
        what = f"cannot keep the dead letter of records {suspects}; nothing is skipped"
        if not await self._insist(keep, what):
            return False
        log.error(
            "%s: %s, %s, skipped; dead letter %s",
            context.shard_id,
            counted(len(judged.entries), "record", "records"),
            suspects,
            letter_id,
            extra={"shard_id": context.shard_id},
        )
        context.metrics.add(DEAD_LETTERED, len(judged.entries))
        context.metrics.add(PASSED_DEAD_LETTER, len(judged.entries))
        self._note = after_letter(self._note, self._now_ms())
        self._skipped = (*self._skipped, suspects)
        what = f"cannot note the dead letter of records {suspects}; trying again"
        if not await self._insist(self._write_note, what):
            return False
        if judged.may_checkpoint:
            await context.checkpointer.pass_over(last)
        return True

    async def _put(self, letter_id: str, text: bytes) -> None:
        """Store a letter; a destination that does not answer must not delay a stop.

        Raises:
            LetterRefused: it may not be stored.
            ThreadRefused: likewise.
        """
        refused: LetterRefused | ThreadRefused | None = None
        try:
            async with asyncio.timeout(None) as limit, asyncio.TaskGroup() as group:
                ending = group.create_task(self._end_if_given_up(limit))
                try:
                    await self._letters.put(letter_id, self._context.shard_id, text)
                except (LetterRefused, ThreadRefused) as error:
                    refused = error
                ending.cancel()
        except TimeoutError:
            refused = LetterRefused("the shard is given up before an answer came")
        if refused is not None:
            raise refused

    async def _end_if_given_up(self, limit: asyncio.Timeout) -> None:
        await self._context.shutdown.leaving()
        limit.reschedule(asyncio.get_running_loop().time())

    def _facts(self) -> LetterFacts:
        context, config = self._context, self._context.parts.config
        stream, existence = context.stream_context.stream, context.stream_context.source.existence
        current = context.current()
        lease = context.held.lease if current is None else current.lease
        return LetterFacts(
            application=config.application_name,
            stream_name=stream.name,
            stream_arn=existence.stream.arn,
            stream_created_at=existence.stream.created_at_s,
            shard_id=context.shard_id,
            lease_key=context.lease_key,
            worker_id=config.worker_id,
            lease_counter=lease.lease_counter,
        )

    async def _hold(self, why: str) -> bool:
        """Start no child; the lease is renewed until it is given up or lost. Returns False."""
        context = self._context
        self.held = context.last_error = why
        self._note = replace(self._note, held=why)
        await self._store_note()
        while context.shutdown.reason is None and context.current() is not None:
            context.metrics.add(SHARD_HELD, 1)
            log.error(
                "%s: the shard is held, nothing is read: %s. Correct the program and restart the"
                " worker",
                context.shard_id,
                why,
                extra={"shard_id": context.shard_id},
            )
            await context.shutdown.pause(HELD_EVERY_S)
        return False

    # -- the row -------------------------------------------------------------------------------

    async def _write_note(self) -> None:
        context = self._context
        await context.parts.renewer.contain(
            context.lease_key, context.held.token, self._note, self._skipped
        )

    async def _store_note(self) -> None:
        """Try once: if it fails, the next owner only counts again."""
        try:
            await self._write_note()
        except LeaseLost:
            self._context.shutdown.lease_lost()
        except AwsError as error:
            log.warning("%s: cannot note the failure: %s", self._context.shard_id, error)

    async def _insist(self, work: Callable[[], Awaitable[None]], what: str) -> bool:
        """Repeat until it succeeds; False when the shard is given up first."""
        context, attempt = self._context, 0
        while context.may_go_on():
            try:
                await work()
            except LeaseLost:
                context.shutdown.lease_lost()
            except (LetterRefused, ThreadRefused, AwsError) as error:
                context.last_error = f"{what}: {error}"
                log.error("%s: %s", context.shard_id, context.last_error)  # noqa: TRY400
                await context.shutdown.pause(
                    backoff_s(attempt, context.parts.runtime.rng, first_s=1.0, cap_s=CAP_S)
                )
                attempt += 1
            else:
                return True
        return False

    def _now_ms(self) -> int:
        """Time of the service if its answers have dates, because arrival times are its own."""
        now = self._context.parts.service_time()
        return int(1000 * (self._clock.wall() if now is None else now))
