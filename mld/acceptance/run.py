"""One run: create, prove, clean up, judge; and the clean-up after a run that was killed."""

from __future__ import annotations

import shlex
import signal
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kcl_mld.acceptance.clean_up import CleanUp
from kcl_mld.acceptance.journal import Journal, JournalledRun, read_journal
from kcl_mld.errors import MldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kcl_mld.acceptance.account import Account
    from kcl_mld.acceptance.budget import Budget
    from kcl_mld.acceptance.clean_up import Remains
    from kcl_mld.acceptance.options import Options
    from kcl_mld.acceptance.resources import Resources

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended.

    Attributes:
        failure: why the proof did not end by itself; None = it did.
        deleted: number of resources that the clean-up deleted.
        left: what it left.
    """

    failure: MldError | None
    deleted: int
    left: tuple[Remains, ...]


def prove_and_clean_up(
    options: Options,
    account: Account,
    resources: Resources,
    budget: Budget,
    prove: Callable[[], None],
    progress: Callable[[str], None],
) -> RunOutcome:
    """Create the resources, run the proof, and delete the resources, whatever happens.

    A first signal ends the proof, and the clean-up follows; a second one ends that, too.

    Args:
        prove: ends its workers before it returns or raises.

    Raises:
        ConfigError: the journal can't be written; nothing is created.
        KeyboardInterrupt: a second signal; the command for the clean-up was printed.
    """
    run = JournalledRun(
        account=options.account,
        region=options.region,
        names=options.names,
        limit_s=options.limit_s,
        endpoints=options.endpoints,
    )
    failure: MldError | None = None
    with Journal(options.journal, run) as journal, interrupted_by_signals(budget):
        try:
            resources.create(journal)
            prove()
        except MldError as error:
            failure = error
            progress(f"The run ends early: {error}")
        finally:
            _, entries = read_journal(options.journal)
            clean_up = CleanUp(account, entries, options.run_id, options.limit_s, progress)
            left = delete_and_tell(clean_up, options.journal, progress)
    return RunOutcome(failure, clean_up.deleted, left)


def clean_up_command(journal: Path) -> str:
    """What to type to delete what a run has left."""
    return f"kcl-mld acceptance --clean-up {shlex.quote(str(journal))}"


def delete_and_tell(
    clean_up: CleanUp, journal: Path, progress: Callable[[str], None]
) -> tuple[Remains, ...]:
    """Delete, and say what is left and what to type then.

    Raises:
        KeyboardInterrupt: the clean-up was interrupted; what to type was said.
    """
    again = clean_up_command(journal)
    try:
        left = clean_up.run()
    except BaseException:
        progress(f"Something may be left. To delete it: {again}")
        raise
    for one in left:
        progress(f"Left: {one.resource}: {one.why_kept}")
    if left:
        progress(f"To try again: {again}")
    return left


@contextmanager
def interrupted_by_signals(budget: Budget) -> Iterator[None]:
    """Let the first signal interrupt the budget, and each further one the code that runs."""
    received: list[int] = []

    def receive(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        budget.interrupt(f"interrupted by {signal.Signals(number).name}")

    before = [
        (number, signal.signal(number, receive))
        for number in _SIGNALS
        if signal.getsignal(number) is not signal.SIG_IGN  # nohup
    ]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
