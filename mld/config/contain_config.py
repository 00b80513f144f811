"""How records that children fail at are handled, under ``childFailurePolicy = deadletter``.

The names are those of Lambda's event source mappings where it has the like.
"""

from __future__ import annotations

from dataclasses import dataclass

from kcl_mld.config.keys import Key, Kind, by_rule, flag, own_count, read_as

DESTINATION = "onFailureDestination"


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class ContainConfig:
    """Records that children fail at.

    Attributes:
        destination: ``file:FOLDER``, ``s3://BUCKET/PREFIX`` or ``sqs:URL``.
        max_record_age_s: None = however old.
        limit: dead letters of a shard within five minutes without the time of attempts; more hold
            the shard.
    """

    destination: str = by_rule("", Key(DESTINATION, Kind.TEXT, None,
        "where dead letters go: file:FOLDER, s3://BUCKET/PREFIX or sqs:URL of the queue", own=True))
    bisects: bool = flag("bisectBatchOnFailure",
        "halve a failed batch until the record is found that fails; false = the whole batch is tried"
        " again and becomes the dead letter", default=True, own=True)
    max_record_age_s: float | None = read_as(lambda value: None if value is None else float(value),
        Key("maximumRecordAgeInSeconds", Kind.STRICT_LONG, None,
        "a record that has failed and is older becomes a dead letter without further attempts",
        least=1, own=True))
    limit: int = own_count("deadLetterLimit", 10,
        "dead letters of one shard within five minutes, the time of attempts not counted; one more"
        " holds the shard")
    with_records: bool = flag("deadLetterRecords", "dead letters have the records; not with sqs",
        own=True)
    with_stderr: bool = flag("deadLetterStderr",
        "dead letters have the last lines that the child wrote to stderr", own=True)
# fmt: on
