"""Where shards of a Spark sink stand, as ``kcl-mld-spark new-epoch`` prints it, for ``reset --from``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mld.errors import ConfigError
from mld.model.sequence import ExtendedSequenceNumber

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mld.cli.fleet_access import FleetAccess
    from mld.model.leases.lease import Lease

_LINE = re.compile(
    r"(?P<stream>\S+) (?P<shard>\S+) stands at (?P<number>[0-9]{1,200})(?:/(?P<sub>[0-9]{1,18}))?\Z"
)


@dataclass(frozen=True, slots=True)
class SparkMarks:
    """The lines of one run of ``new-epoch``.

    Attributes:
        path: of the file, for messages.
        positions: by name of the stream and shard id.
    """

    path: str
    positions: Mapping[tuple[str, str], ExtendedSequenceNumber]

    @property
    def needs_rest(self) -> bool:
        """No worker may run: it would go on in the epoch before."""
        return True

    @classmethod
    def read(cls, path: str) -> SparkMarks:
        """Read a file.

        Raises:
            ConfigError: it can't be read, or has no such line.
        """
        try:
            lines = Path(path).read_text("utf-8").splitlines()
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror}") from None
        except UnicodeDecodeError:
            lines = []
        found = [match for line in lines if (match := _LINE.match(line.strip()))]
        if not found:
            raise ConfigError(
                f"{path} has no line of kcl-mld-spark new-epoch, such as: orders "
                "shardId-000000000000 stands at 4960"
            )
        return cls(
            path,
            {
                (one["stream"], one["shard"]): ExtendedSequenceNumber(
                    one["number"], int(one["sub"] or 0)
                )
                for one in found
            },
        )

    async def positions_of(
        self, access: FleetAccess, leases: Sequence[Lease]
    ) -> dict[str, ExtendedSequenceNumber]:
        """Checkpoints of leases by key; those without a line are left out."""
        found = {}
        for lease in leases:
            stream = access.streams.streams.get(lease.stream_identifier)
            for name in () if stream is None else (stream.name, stream.identifier):
                position = self.positions.get((str(name), lease.shard_id))
                if position is not None:
                    found[lease.lease_key] = position
        return found
