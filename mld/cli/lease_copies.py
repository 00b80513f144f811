"""``kcl-mld leases export``: a copy of all checkpoints, and how ``reset --from`` reads it."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kcl_mld.cli.fleet_access import open_access, table_missing
from kcl_mld.cli.fleet_documents import VERSION
from kcl_mld.cli.loading import read_config
from kcl_mld.cli.options import takes_properties_file
from kcl_mld.cli.steer_leases import position_as_json
from kcl_mld.cli.tables import print_json
from kcl_mld.errors import ConfigError, MalformedData, MoveRefused, NotFound
from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber, Sentinel
from kcl_mld.streams.rules.stream_identity import created_at_s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kcl_mld.cli.fleet_access import FleetAccess
    from kcl_mld.config.config import Config
    from kcl_mld.leases.model.lease import Lease


@click.command("export")
@takes_properties_file()
def export(file: str) -> int:
    """Print the checkpoints of all leases as JSON, for reset --from.

    The copy has ARN and creation time of each stream, so that it is not used for another one.
    """
    config = read_config(file)
    print_json(asyncio.run(_export(config)))
    return 0


async def _export(config: Config) -> dict[str, Any]:
    with open_access(config) as access:
        try:
            scan = await access.store.scan()
        except NotFound:
            raise table_missing(config) from None
        streams = await _streams_of(access, scan.leases)
        return {
            "version": VERSION,
            "application": config.application_name,
            "table": config.leases.table_name,
            "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "streams": dict(sorted(streams.values())),
            "leases": [
                {
                    "lease": one.lease_key,
                    "stream": streams[one.stream_identifier][0],
                    **(position_as_json(one.checkpoint) or {}),
                }
                for one in scan.leases
                if one.stream_identifier in streams
            ],
        }


async def _streams_of(
    access: FleetAccess, leases: Sequence[Lease]
) -> dict[str | None, tuple[str, dict[str, Any]]]:
    """By identifier: the name under which a copy has a stream, and its ARN and creation time."""
    await access.streams.look({one.stream_identifier for one in leases}, fresh=True)
    found: dict[str | None, tuple[str, dict[str, Any]]] = {}
    for identifier, stream in access.streams.streams.items():
        answer = await access.kinesis.describe_stream_summary(**stream.request())
        summary = answer["StreamDescriptionSummary"]
        created_s = created_at_s(summary.get("StreamCreationTimestamp"))
        facts = {"arn": summary["StreamARN"], "created_s": created_s}
        found[identifier] = (identifier or stream.name, facts)
    return found


@dataclass(frozen=True, slots=True)
class LeaseCopy:
    """What ``export`` has printed.

    Attributes:
        path: of the file, for messages.
        positions: by lease key: the name of its stream in the copy, and its checkpoint.
        streams: ARN and creation time (epoch seconds) by that name.
    """

    path: str
    positions: Mapping[str, tuple[str, ExtendedSequenceNumber]]
    streams: Mapping[str, tuple[str, float | None]]

    @property
    def needs_rest(self) -> bool:
        """Holders may be asked."""
        return False

    @classmethod
    def read(cls, path: str) -> LeaseCopy:
        """Read a file.

        Raises:
            ConfigError: it can't be read, or is no such copy.
        """
        try:
            document = json.loads(Path(path).read_bytes())
            positions = {
                str(one["lease"]): (
                    str(one["stream"]),
                    ExtendedSequenceNumber(str(one["checkpoint"]), int(one["sub_sequence_number"])),
                )
                for one in document["leases"]
            }
            streams = {
                str(name): (str(facts["arn"]), facts["created_s"])
                for name, facts in document["streams"].items()
            }
        except OSError as error:
            raise ConfigError(f"{path} can't be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, MalformedData) as error:
            raise ConfigError(
                f"{path} is not what kcl-mld leases export prints: {error!r}"
            ) from None
        return cls(path, positions, streams)

    async def positions_of(
        self, access: FleetAccess, leases: Sequence[Lease]
    ) -> dict[str, ExtendedSequenceNumber]:
        """Checkpoints of leases by key; those that the copy does not have are left out.

        Raises:
            MoveRefused: a checkpoint is of another stream, or is no place to go back to.
        """
        streams = await _streams_of(access, leases)
        found = {}
        for lease in leases:
            key = lease.lease_key
            if key not in self.positions:
                continue
            copied, position = self.positions[key]
            name, facts = streams.get(lease.stream_identifier, ("", {}))
            if copied != name or self.streams.get(copied) != (
                facts.get("arn"),
                facts.get("created_s"),
            ):
                raise MoveRefused(
                    f"{self.path}: the checkpoint of {key} is of another stream, or of an earlier one "
                    "of that name, so it says nothing about this one"
                )
            if position.sentinel in (Sentinel.LATEST, Sentinel.SHARD_END):
                raise MoveRefused(
                    f"{self.path}: {key} was at {position}, which is no place to go back to; name the "
                    "other leases"
                )
            found[key] = position
        return found


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
        """No worker may run, because it would continue in the previous epoch."""
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
