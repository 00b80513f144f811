"""The resources of a run: which there are, and which of those that are found may be deleted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Tag of the stream and of the table with a change stream, parameter of the Glue database; its value
#: is the run id.
TAG = "kcl-mld-acceptance"
#: AWS refuses requests whose clock is further off.
_CLOCK_S = 300.0
#: What a worker creates after the limit of time is not of this run.
_AFTER_S = 3600.0
#: Creation times are reported with milliseconds or whole seconds.
_ROUNDED_S = 1.0
#: Partition keys of the lease table, and of the two tables beside it in KCL 3.0 to 3.4.
_WORKERS_KEYS = frozenset({"leaseKey", "wid", "key"})


#: What the clean-up leaves in a bucket: to find it takes permissions that no prefix limits.
STAYS_IN_S3 = (
    "old versions of objects and unfinished uploads may stay: a lifecycle rule deletes them"
)


class ResourceKind(StrEnum):
    """In the order in which they are deleted."""

    CONSUMER = "consumer"
    STREAM = "stream"
    LEASE_TABLE = "lease table"
    TABLE = "table"
    GLUE_DATABASE = "Glue database"
    OBJECTS = "objects below"


#: Created by the command, with a tag. The others are created by workers and belong to an owner.
TAGGED = frozenset({ResourceKind.STREAM, ResourceKind.TABLE, ResourceKind.GLUE_DATABASE})


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that a run creates.

    Attributes:
        name: of objects, ``bucket/prefix/``.
        owner: of a consumer, the stream that it reads; else "".
    """

    kind: ResourceKind
    name: str
    owner: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """What the journal says of a resource.

    Attributes:
        at_s: epoch seconds at which its creation was announced.
        created_s: epoch seconds at which AWS says that it was created; None = that was not seen.
    """

    resource: Resource
    at_s: float
    created_s: float | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """A resource as AWS has it.

    Attributes:
        created_s: epoch seconds; of objects, that of the oldest.
        tags: of kinds that have a tag.
        key: of a lease table, the name of its partition key.
        is_going: it is being deleted.
    """

    created_s: float
    tags: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    is_going: bool = False


def why_foreign(entry: JournalEntry, found: Found, run_id: str, limit_s: float) -> str | None:
    """Why a resource with a journalled name is not this run's; None = it is, and may be deleted.

    Args:
        limit_s: of the run.
    """
    resource = entry.resource
    reasons = {
        "its name does not contain the run id": run_id in resource.name,
        "it was created at another time than this run's": entry.created_s is None
        or abs(found.created_s - entry.created_s) <= _ROUNDED_S,
        "it is older than the run": found.created_s >= entry.at_s - _CLOCK_S,
        "it was created after the run": found.created_s <= entry.at_s + limit_s + _AFTER_S,
        f"it has no tag {TAG} = {run_id}": resource.kind not in TAGGED
        or found.tags.get(TAG) == run_id,
        f"it is no table of the KCL: its key is {found.key}": resource.kind
        is not ResourceKind.LEASE_TABLE
        or found.key in _WORKERS_KEYS,
    }
    return next((reason for reason, fits in reasons.items() if not fits), None)
