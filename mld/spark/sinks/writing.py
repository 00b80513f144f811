"""How Spark is told to write the files of a job, beyond what the user says.

On a file system of this machine Hadoop runs the program ``chmod`` for each directory and file, and
keeps a checksum file beside each: ten processes for a job of two files, an eighth of the time of a
warm one. So there a job writes without checksum files, which were removed anyway, and into
directories that are made for it before (:mod:`mld.spark.table.job_files`). Four are left: Hadoop
gives each task a directory and a file.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mld.model.spark.addresses import is_s3
from mld.model.spark.keys import WRITE_TASKS, whole_number
from mld.spark.errors import SparkConfigError
from mld.spark.server.settings import CONF_DIRECTORIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.spark.config import SparkConfig

#: Masters without a number of tries.
_ONE_TRY = re.compile(r"local(\[[0-9*]+\])?")
_NO_SUCCESS_FILE = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
_ONE_RENAME = {"mapreduce.fileoutputcommitter.algorithm.version": "2"}
#: What the user may say of it, for all that the server does.
_FILE_SYSTEM = "spark.hadoop.fs.file.impl"
_UMASK = "spark.hadoop.fs.permissions.umask-mode"
#: For this job alone, so not out of the cache of file systems, where there is another one.
_NO_CHECKSUM_FILES = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
}


def write_tasks(config: SparkConfig) -> int:
    """How many tasks write the files of a job; 0 = as many as Spark makes.

    As many as a ``local`` master has cores. More of them cost more, and make smaller files: on two
    cores 16,000 records took twice the time in 16 tasks.

    Raises:
        SparkConfigError: ``spark.sink.options.writeTasks`` is not a whole number.
    """
    if not (text := config.sink_options.get(WRITE_TASKS)):
        return config.local_cores
    try:
        return whole_number(text)
    except ValueError as error:
        raise SparkConfigError(f"spark.sink.options.{WRITE_TASKS}: {error}") from error


def can_lay_out(config: SparkConfig, environ: Mapping[str, str]) -> bool:
    """Whether the directories that Spark would make for a job can be made before, as it would.

    Not where Spark may be another user, or where Hadoop may be told of other rights.

    Args:
        config: its master and ``spark.conf.*``.
        environ: of the server.
    """
    is_told = _UMASK in config.conf or any(environ.get(name) for name in CONF_DIRECTORIES)
    return bool(config.local_cores) and not is_told


def writer_options(config: SparkConfig) -> dict[str, str]:
    """For Spark's writer of Parquet; what the user says comes after, and wins.

    In S3 a rename is a copy, so one is better than two. That is right where no task is tried twice:
    another try may leave out a file of the first.
    """
    found = dict(_NO_SUCCESS_FILE)
    if is_s3(config.sink_path or ""):
        if config.is_embedded and _ONE_TRY.fullmatch(config.master):
            found |= _ONE_RENAME
    elif config.local_cores and _FILE_SYSTEM not in config.conf:
        found |= _NO_CHECKSUM_FILES
    return found
