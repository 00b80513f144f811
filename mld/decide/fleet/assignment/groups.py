"""Which workers belong together, so that leases can be spread over groups as well.

A group is what fails, scales or is deployed together: a zone, a cluster, a colour of a deployment.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: The first block of a UUID, a hash, an instance number: chance, not a name.
_BY_CHANCE = re.compile(r"[0-9a-fA-F]{8,}")


def groups_of(workers: Iterable[str], named: Mapping[str, str]) -> dict[str, str]:
    """The group of each worker.

    Args:
        workers: ids of the workers that take part.
        named: worker id -> group, for workers that say which is theirs (``workerGroup``).

    Returns:
        Worker id -> group. One that names none belongs to the part of its id before the first
        ``-``, if that is so for all that name none: each id has such a part, and none looks like
        chance (8 or more hexadecimal digits, as in a UUID). Otherwise they are one group, without
        a name. Where there are fewer than two groups, or each worker is one of its own, everybody
        is in the group ``""``: there is nothing to spread over.

    Wrong guesses are harmless: a group's fair share is that of its workers, so groups only decide
    who has the one lease more where the workers' numbers can't be equal.
    """
    ids = sorted(workers)
    unnamed = [worker for worker in ids if worker not in named]
    guesses = {worker: _guess(worker) for worker in unnamed}
    if not all(guesses.values()):
        guesses = dict.fromkeys(unnamed, "")
    groups = {worker: named.get(worker) or guesses[worker] for worker in ids}
    if not 2 <= len(set(groups.values())) < len(ids):
        return dict.fromkeys(ids, "")
    return groups


def _guess(worker: str) -> str:
    head, dash, _rest = worker.partition("-")
    return "" if not dash or _BY_CHANCE.fullmatch(head) else head
