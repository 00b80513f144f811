"""How many tasks write the files of a job."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from mld.spark.errors import SparkConfigError

if TYPE_CHECKING:
    from mld.spark.config import SparkConfig

#: Below ``spark.sink.options.``; ours, and not handed to Spark's writer.
TASKS_OPTION = "writeTasks"
_LOCAL = re.compile(r"local(?:\[(\*|\d+)[^]]*\])?")


def write_tasks(config: SparkConfig) -> int | None:
    """How many tasks write a job, at most one a batch; 0 = as many as Spark makes.

    A task that writes several batches costs less than as many tasks (half the time for 16 batches
    of 1,000 records on two cores), and a batch gets one file if a single task has all its rows.
    So: the cores of a ``local`` master; one task a batch elsewhere (None).

    Raises:
        SparkConfigError: ``spark.sink.options.writeTasks`` is not a whole number.
    """
    if (text := config.sink_options.get(TASKS_OPTION)) is not None:
        if not (text.isascii() and text.isdigit()):
            raise SparkConfigError(
                f"spark.sink.options.{TASKS_OPTION}: {text!r} is not a whole number"
            )
        return int(text)
    match = _LOCAL.fullmatch(config.master) if config.is_embedded else None
    if match is None:
        return None
    cores = os.cpu_count() or 1 if match[1] == "*" else int(match[1] or 1)
    return max(1, cores)
