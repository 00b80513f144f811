"""Where the number of a batch is kept when the lease row cannot hold it: files, or DynamoDB.

Both are a compare-and-append: a number is stored once, and nothing is stored below the highest. A
store whose answer is lost is read again; the same intent found there counts as stored, because a
batch with the same range has the same records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.errors import SparkConfigError
from mld.spark.intents.dynamodb import DynamoIntentStore
from mld.spark.intents.file import FileIntentStore

if TYPE_CHECKING:
    from mld.spark.config import SparkConfig
    from mld.spark.ports import IntentStore

__all__ = ["make_intent_store"]


def make_intent_store(config: SparkConfig, application: str) -> IntentStore | None:
    """The store that ``spark.intent.store`` names.

    Args:
        config: with ``spark.intent.path`` or ``spark.intent.table``.
        application: name of the KCL application; part of the default table's name.

    Returns:
        None for ``lease`` (the shard's session asks the daemon) and for ``none``.

    Raises:
        SparkConfigError: the place is not named.
        BatchFailed: the place cannot be written to.
    """
    match config.intent_store:
        case "file":
            return FileIntentStore(_directory(config))
        case "dynamodb":
            return DynamoIntentStore(config.intent_table or f"{application}-kcl-mld-intents")
        case _:
            return None


def _directory(config: SparkConfig) -> str:
    if config.intent_path is None:
        raise SparkConfigError(
            "spark.intent.store=file needs spark.intent.path: a directory that all workers share"
        )
    path = config.intent_path.removeprefix("file://")
    if "://" in path:
        raise SparkConfigError(
            f"spark.intent.path={path}: only a directory of a POSIX file system works; elsewhere"
            " set spark.intent.store=dynamodb"
        )
    return path
