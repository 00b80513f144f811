"""Changes of a DynamoDB table, numbered for each item."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from kcl_mld.acceptance.fleet import StageFailed

if TYPE_CHECKING:
    from kcl_mld.acceptance.budget import Budget
    from kcl_mld.acceptance.recording import RunRecording

#: Name of the table in the recording.
CHANGES = "changes"
_ITEMS = 5
_VERSIONS = 20
_PAUSE_S = 0.05


def write_changes(
    dynamodb: Any, table: str, budget: Budget, recording: RunRecording
) -> set[tuple[str, int]]:
    """Put each item some times with a number that goes up by one, then delete it.

    Returns: id and number of each change; the deletion has the number after the last.

    Raises:
        StageFailed: a write was refused, or nobody knows whether it was made.
    """
    taken: set[tuple[str, int]] = set()
    for number in range(_VERSIONS + 1):
        for item in (f"item-{index}" for index in range(_ITEMS)):
            at = time.time()
            change = {"source": CHANGES, "key": item, "first": number, "count": 1}
            key = {"id": {"S": item}}
            try:
                if number == _VERSIONS:
                    dynamodb.delete_item(TableName=table, Key=key)
                else:
                    dynamodb.put_item(TableName=table, Item=key | {"n": {"N": str(number)}})
            except (BotoCoreError, ClientError) as error:
                recording.append("unsure", **change)
                raise StageFailed(f"a write to {table}: {error}") from error
            recording.append("put", at=at, **change)
            budget.note_table_write(1)
            taken.add((item, number))
        budget.sleep(_PAUSE_S)
    return taken
