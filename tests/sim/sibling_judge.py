"""The judge of children that share a shard: whose a record is, what is confirmed (S20 to S26, L9, L10).

What is true of several children is true of one, so fleets of both kinds are judged.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from kcl_mld.kernel.model.sequence import Sentinel
from tests.sim.rows import position_of, short, text_of, worker_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber
    from kcl_mld_protocol.messages import CheckpointRequest
    from tests.sim.children import SimChild
    from tests.sim.court import Court, ShardLog
    from tests.sim.rows import Item
    from tests.sim.stream import ShardTruth

#: With children that checkpoint by a timer of 30 s, and empty batches that are up to 30 s apart.
MARK_MOVES_S = 80.0
#: From the put of a record, or its last answer, to a child that waits, while the lease is held; the answer to a request of
#: before may be waited for for 30 s, an event of a subscription for 60 s.
WAITS_S = 66.0
#: Between two looks.
LOOK_S = 2.0


class SiblingJudge:
    """Follows what each child was given and has confirmed.

    Args:
        court: where it sits.
    """

    def __init__(self, court: Court) -> None:
        self._court = court
        self._living: dict[tuple[str, str], list[SimChild]] = {}
        self._began_s: dict[SimChild, float] = {}
        #: Shard -> when each of its records was first seen here.
        self._put_s: dict[str, list[float]] = {}
        self._looked_s = 0.0
        #: Worker, shard and index -> the last process that ended, and when.
        self._former: dict[tuple[str, str, int], tuple[SimChild, float]] = {}
        #: Worker and shard -> the first record that one of several children was given at LATEST.
        self._latest: dict[tuple[str, str], int] = {}

    def started(self, worker: str) -> None:
        """A process began under that id: it does not know where another one began at LATEST."""
        self._latest = {hold: index for hold, index in self._latest.items() if hold[0] != worker}

    # -- the life of a child -----------------------------------------------------------------------

    def began(self, child: SimChild, truth: ShardTruth, position: ExtendedSequenceNumber) -> None:
        """A child was told where to begin."""
        court, log = self._court, self._court.log(child.shard_id)
        court.counts["child"] += 1
        court.counts["sibling"] += child.siblings > 1
        living = self._living.setdefault((child.worker, child.shard_id), [])
        for other in living:
            if not other.has_last_word and _share_keys(child, other):
                court.convict("S21", f"{_name(child)} begins while {_name(other)} lives")
        if position.sentinel is not Sentinel.LATEST:
            upto = truth.covered(position)
            self._check_begin(child, truth, log, upto, living)
        living.append(child)
        self._began_s[child] = court.now()

    def begins_at(self, child: SimChild, index: int) -> int:
        """Where the reading for a child began at LATEST, given the first record that it has."""
        if child.siblings == 1:
            return index
        hold = (child.worker, child.shard_id)
        self._latest[hold] = min(index, self._latest.get(hold, index))
        return self._latest[hold]

    def _check_begin(
        self,
        child: SimChild,
        truth: ShardTruth,
        log: ShardLog,
        upto: int,
        living: list[SimChild],
    ) -> None:
        court = self._court
        row = court.rows.get(child.shard_id)
        if row is not None and position_of(row).sentinel is Sentinel.LATEST:
            # What came before the first line is past; a sibling that has had records tells where.
            for index in range(upto):
                if child.gets(truth.keys[index]) and index not in log.given_s:
                    log.mark(index)
                    log.confirm(index)
        skipped = self._own(child, truth, range(upto), lambda index: not log.is_done(index))
        if skipped is not None:
            court.convict("S1", f"{_name(child)} begins behind record {skipped}, which nobody had")
        if worker_of(row) != child.worker or child.siblings == 1 or row is None:
            return
        stored = range(upto, truth.covered(position_of(row)))
        again = self._own(child, truth, stored, lambda _: True)
        if again is None and (former := self._replaced(child, living)) is not None:
            known = former.given[: former.acknowledged]
            again = next((index for index in known if index >= upto), None)
        if again is not None:
            court.convict(
                "S23", f"{_name(child)} begins at record {upto}: {again} was confirmed before"
            )

    def _replaced(self, child: SimChild, living: list[SimChild]) -> SimChild | None:
        """The process that a new one replaces, while a sibling goes on."""
        former, ended_s = self._former.get((child.worker, child.shard_id, child.index), (None, 0.0))
        if former is None or former.has_last_word:
            return None
        goes_on = any(
            one.index != child.index and not one.has_last_word and self._began_s[one] < ended_s
            for one in living
        )
        return former if goes_on else None

    @staticmethod
    def _own(child: SimChild, truth: ShardTruth, indices: Iterable[int], is_so: Any) -> int | None:
        """The first record of a child of which something is so; None = of none."""
        return next(
            (index for index in indices if child.gets(truth.keys[index]) and is_so(index)), None
        )

    def ended(self, child: SimChild, code: int) -> None:
        """A process is gone."""
        self._court.counts["child failed"] += code != 0 and not child.has_last_word
        living = self._living.get((child.worker, child.shard_id), [])
        if child in living:
            living.remove(child)
            which = (child.worker, child.shard_id, child.index)
            self._former[which] = child, self._court.now()
        self._began_s.pop(child, None)

    # -- records and confirmations -----------------------------------------------------------------

    def given(self, child: SimChild, truth: ShardTruth, index: int) -> None:
        """A child was sent a record."""
        court, log = self._court, self._court.log(child.shard_id)
        if not child.gets(truth.keys[index]):
            court.convict(
                "S20", f"{_name(child)} got record {index}, whose key is {truth.keys[index]!r}"
            )
        row = court.rows.get(child.shard_id)
        if row is not None and worker_of(row) == child.worker and position_of(row).is_shard_end:
            court.convict("S24", f"{_name(child)} got record {index} after SHARD_END")
        child.given.append(index)
        if self._holds(child):
            log.given_s[index] = court.now()

    def _holds(self, child: SimChild) -> bool:
        """Whether its worker has the lease, and not only believes so."""
        return worker_of(self._court.rows.get(child.shard_id)) == child.worker

    def processed(self, who: str, shard_id: str, truth: ShardTruth, index: int) -> bool:
        """Somebody has done a record's work; False when it had been done before."""
        log = self._court.log(shard_id)
        is_first = log.mark(index)
        before = truth.previous[index]
        if is_first and before >= 0 and not log.is_done(before):
            self._court.convict(
                "S25", f"{who} did record {index} of {shard_id} before {before}, of the same key"
            )
        return is_first

    def requested(self, child: SimChild, truth: ShardTruth, request: CheckpointRequest) -> None:
        """A child asks for a checkpoint: what it may ask for, it has confirmed from now on."""
        number = request.sequence_number
        if number is None or (number == "SHARD_END" and child.knows_end):
            self.confirmed(child, len(child.given))
        elif number.isdecimal():
            place = (int(number), request.sub_sequence_number or 0)
            upto = bisect_right(truth.places, place)
            if child.given and upto <= child.given[-1] + 1:
                self.confirmed(child, bisect_right(child.given, upto - 1))

    def answered_batch(self, child: SimChild) -> None:
        """A child has answered processRecords."""
        if self._court.answers_confirm and child.siblings > 1:
            self.confirmed(child, len(child.given))

    def confirmed(self, child: SimChild, count: int) -> None:
        """So many of the records that a child was given are confirmed."""
        log = self._court.log(child.shard_id)
        for index in child.given[child.confirmed : count]:
            if self._holds(child):
                log.confirm(index)
        child.confirmed = max(child.confirmed, count)

    # -- the row -----------------------------------------------------------------------------------

    def stored(self, key: str, truth: ShardTruth, position: ExtendedSequenceNumber) -> None:
        """The checkpoint of a lease is moved on."""
        court, log = self._court, self._court.log(truth.shard_id)
        if court.actor not in court.foreigners | court.by_counter:
            self._check_mark(key, truth, position)
        for index in range(log.confirmed_prefix, truth.covered(position)):
            log.confirm(index)

    def _check_mark(self, key: str, truth: ShardTruth, position: ExtendedSequenceNumber) -> None:
        court, log = self._court, self._court.log(truth.shard_id)
        upto = truth.covered(position)
        unconfirmed = next(
            (
                index
                for index in range(log.confirmed_prefix, upto)
                if not log.is_confirmed(index) and index not in log.dead
            ),
            None,
        )
        if unconfirmed is not None:
            court.convict(
                "S22",
                f"{court.actor} moved the mark of {key} to {upto} past {unconfirmed}, which its child"
                " has not confirmed",
            )
        if position.is_shard_end:
            for child in self._living.get((court.actor, truth.shard_id), []):
                if not child.knows_end:
                    court.convict("S24", f"{key} is at SHARD_END before {_name(child)} knows")
        elif position.sentinel is None:
            place = (int(position.sequence_number), position.sub_sequence_number)
            if place not in truth.index:
                court.convict(
                    "S22", f"{court.actor} moved the mark of {key} to {position}: no record"
                )

    def wrote(self, key: str, before: Item | None, after: Item) -> None:
        """A lease was written: another worker may have it."""
        truth = self._court.stream.find(key)
        if truth is not None and worker_of(before) != worker_of(after):
            self._court.log(key).hold_from(truth.covered(position_of(after)))
            self._latest.pop((str(worker_of(before)), key), None)

    def check_stopped(self) -> None:
        """S26: after orderly stops with children that keep the time, nothing comes again."""
        court = self._court
        for key, row in court.rows.items():
            truth, log = court.stream.find(key), court.log(key)
            position = position_of(row)
            if truth is None or court.stream.deleted_s(key) is not None:
                continue
            if position.sentinel is not None and not position.is_shard_end and not log.given_s:
                continue  # nobody had a record
            if (upto := truth.covered(position)) < log.prefix:
                court.convict(
                    "S26", f"{key} was left at record {upto}, and {log.prefix} were processed"
                )

    # -- from time to time -------------------------------------------------------------------------

    def tick(self) -> None:
        """L9 and L10, while children behave."""
        court, now = self._court, self._court.now()
        if court.polite_s is None or now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        for (worker, shard_id), living in self._living.items():
            row, truth = court.rows.get(shard_id), court.stream.find(shard_id)
            several = [child for child in living if child.siblings > 1]
            if not several or row is None or truth is None or worker_of(row) != worker:
                continue
            if position_of(row).is_shard_end or text_of(row, "checkpointOwner") is not None:
                continue
            if any(child.has_last_word for child in several):
                continue
            upto = truth.covered(position_of(row))
            since_s = max(court.polite_s, min(self._began_s[child] for child in several))
            self._check_moves(shard_id, several, upto, since_s)
            self._check_waits(truth, several, upto, since_s)

    def _check_moves(
        self, shard_id: str, several: list[SimChild], upto: int, since_s: float
    ) -> None:
        """L9: what holds the mark was given long ago, and others had more since."""
        court, log = self._court, self._court.log(shard_id)
        if upto not in log.given_s:
            return
        given_s = max(log.given_s[upto], since_s)
        if any(child.busy_since_s is not None for child in several):
            return
        is_busy = any(
            at_s > given_s + MARK_MOVES_S / 2 for index, at_s in log.given_s.items() if index > upto
        )
        if is_busy and court.now() - given_s > MARK_MOVES_S:
            court.convict("L9", f"the mark of {shard_id} stands before {upto} for {MARK_MOVES_S} s")

    def _check_waits(
        self, truth: ShardTruth, several: list[SimChild], upto: int, since_s: float
    ) -> None:
        """L10: a record waits, and its child does, too."""
        court, log = self._court, self._court.log(truth.shard_id)
        put_s = self._put_s.setdefault(truth.shard_id, [])
        put_s += [court.now()] * (len(truth.places) - len(put_s))
        by_index = {child.index: child for child in several}
        last_s = max(log.given_s.values(), default=0.0)
        passed_s = court.now() - WAITS_S
        passed = max((one for one, at_s in log.given_s.items() if at_s < passed_s), default=-1)
        if len({child.siblings for child in several}) > 1:
            return
        for index in range(upto, len(truth.places)):
            if index in log.given_s or max(put_s[index], since_s) >= passed_s:
                continue
            if index > passed and last_s >= passed_s:
                continue  # there is a backlog, and the reader works on it
            mine = (one for one in by_index.values() if one.gets(truth.keys[index]))
            child = next(mine, None)
            if child is None or (child.busy_since_s is None and child.idle_since_s < passed_s):
                court.convict(
                    "L10",
                    f"record {index} of {truth.shard_id} waits, and so does its child of"
                    f" {several[0].worker}",
                )
                return


def _share_keys(one: SimChild, other: SimChild) -> bool:
    return one.index == other.index or one.siblings != other.siblings


def _name(child: SimChild) -> str:
    which = f"/{child.index} of {child.siblings}" if child.siblings > 1 else ""
    return f"the child {short(child.shard_id)}{which} of {child.worker}"
