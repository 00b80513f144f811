"""What becomes of leases whose stream is not in the list any more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mld.model.streams.listed_stream import ListedStream


class FormerStrategy(StrEnum):
    """``formerStreamsLeasesDeletionStrategy``.

    Source: FormerStreamsLeasesDeletionStrategy.StreamsLeasesDeletionType (KCL 3.5.1).
    """

    #: Leases of former streams stay, and are read on.
    NO_DELETION = "NO_STREAMS_LEASES_DELETION"
    #: Those of every former stream are deleted.
    AUTO_DETECTION = "FORMER_STREAMS_AUTO_DETECTION_DEFERRED_DELETION"
    #: Those of the former streams that the file names are deleted.
    PROVIDED_LIST = "PROVIDED_STREAMS_DEFERRED_DELETION"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPolicy:
    """What becomes of leases whose stream left the list.

    Attributes:
        strategy: which leases are deleted.
        wait_s: how long a stream has to be gone from the list.
        named: the streams that the file names, as read at the start.
    """

    strategy: FormerStrategy = FormerStrategy.NO_DELETION
    wait_s: float = 3600.0
    named: tuple[ListedStream, ...] = ()
