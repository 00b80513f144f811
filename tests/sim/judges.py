"""The judges: they watch the table, the children and the workers, and believe nobody.

Nothing here shares code with the services, except the order of sequence numbers; nothing here
changes the world. A judge that is never seen to convict proves nothing: ``test_judges.py`` plants
one fault per rule.

S0  nothing fails in a way that nobody foresaw
S1  no record is skipped: not within a child, not by a checkpoint, not by the end of a shard
S2  a checkpoint never moves back and is only written by the owner, except by a reset of a person,
    from which on all records are due again; counters never fall
S3  a shard's first record comes after its parents' SHARD_END is in the table
S4  two workers believe in one lease only inside the steal window (see
    :meth:`tests.sim.belief_judge.BeliefJudge.tick`), and who does not believe delivers nothing and
    checkpoints nothing, however long it stood still
S5  every stored item is one that a Java worker can read
S6  no message is illegal for the child's state; nothing is said after the last word
S7  a worker that has ended leaves no task and no child
S8  nobody gets a tick unasked
S9  an open shard has no end; when stream or table were deleted, no shard is finished because of it,
    and no lease is created or deleted
S10 one worker at a time has the leader lock, until it expired or was given up; nobody else assigns
S11 a leader takes no lease away that is renewed in time, but asks for it
S12 a fleet that works as 2.x has no lock, and one that was rolled back no metrics
S13 nobody reads a table that was left
S14 attributes that nobody knows survive, and so does all that is moved
S15 a leader gives no lease to a worker that was seen dead, until that reports again, nor to one that
    is silent
S16 the owner of a lease that is paused delivers nothing of it
S17 what a command asked and took back is not carried out, nor what was asked before another worker
    had the lease
S18 a worker of ours gives no lease that is paused to a worker that would read it
S19 no more processes read a shard of a table at a time than the service allows
S20 a child gets records of its own keys only, wherever there are several for a shard
S21 no two processes of a worker that live have the same key
S22 a checkpoint covers only what was confirmed by the child that had it, or by a former holder, and
    is the position of a record
S23 a child that replaces another gets nothing again that was confirmed, and its siblings nothing
S24 the end of a shard comes last, and when all children know of it
S25 records of a key are processed in their order
S26 after an orderly stop no record comes again
L7  hand-offs end
L8  three tables become one
L9  checkpoints go on while every child answers
L10 no child waits while its records do
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.sim.belief_judge import BeliefJudge
from tests.sim.child_judge import ChildJudge
from tests.sim.fleet_judge import FleetJudge
from tests.sim.sibling_judge import SiblingJudge
from tests.sim.table_judge import TableJudge

if TYPE_CHECKING:
    from tests.sim.court import Court


class Judges:
    """All rules over one run.

    Args:
        court: what they share.
        table: name of the lease table.
        calm_window_s: how long the loser of a stolen lease may believe in it while faults are off.
        steal_pause_s: between two leases that one worker steals.
        is_undisturbed: nothing ever delays a write or ends a worker.
        deletes_former: leases of a stream that was deleted may be deleted.
        is_assigned: a leader assigns the leases.

    Attributes:
        fleet: asked from time to time while faults are off.
        table: told of every write.
        beliefs: asked from time to time, and told of what workers send.
        children: told of every message and of every record that is processed.
        siblings: asked from time to time.
    """

    def __init__(
        self,
        court: Court,
        *,
        table: str,
        calm_window_s: float,
        steal_pause_s: float,
        is_undisturbed: bool,
        deletes_former: bool,
        is_assigned: bool = False,
    ) -> None:
        self.fleet = FleetJudge(court, is_on=is_assigned)
        self.siblings = SiblingJudge(court)
        self.table = TableJudge(
            court,
            self.fleet,
            self.siblings,
            table=table,
            calm_window_s=calm_window_s,
            steal_pause_s=steal_pause_s,
            is_undisturbed=is_undisturbed,
            deletes_former=deletes_former,
        )
        self.beliefs = BeliefJudge(court)
        self.children = ChildJudge(court, self.siblings)
