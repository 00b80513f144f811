"""What becomes of leases whose stream is not in the list any more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from mld.model.config.keys import Key, Kind, by_rule, own_millis, read_as

if TYPE_CHECKING:
    from mld.model.streams.listed_stream import ListedStream

STRATEGY_KEY = "formerStreamsLeasesDeletionStrategy"
WAIT_KEY = "formerStreamsLeasesDeletionWaitMillis"
#: The property with the streams whose leases are deleted.
NAMED_KEY = "formerStreamsForLeaseCleanup"


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

    @classmethod
    def read(cls, text: str) -> FormerStrategy:
        """The strategy of a file, which may have the short name."""
        return cls[text] if text in cls.__members__ else cls(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormerPolicy:
    """What becomes of leases whose stream left the list.

    Attributes:
        named: the streams that the file names, as read at the start.
    """

    # fmt: off
    strategy: FormerStrategy = read_as(FormerStrategy.read, Key(STRATEGY_KEY, Kind.ENUM,
        FormerStrategy.NO_DELETION.value,
        "what becomes of leases whose stream left the list; short names mean the same",
        (*(one.value for one in FormerStrategy), *FormerStrategy.__members__), own=True))
    wait_s: float = own_millis(WAIT_KEY, 3_600_000,
        "how long a stream has to be gone from the list until its leases are deleted", least=0)
    named: tuple[ListedStream, ...] = by_rule((), Key(NAMED_KEY, Kind.TEXT, None,
        "streams whose leases are deleted, as in `streams`; read anew from the file each minute",
        own=True))
    # fmt: on
