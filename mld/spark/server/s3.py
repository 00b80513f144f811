"""What the embedded Spark server is given so that it writes to S3. Pure but for one look.

Hadoop's client comes from Maven with the few parts of the AWS SDK that it uses: 14 MB. The bundle
that it names itself has every service of AWS: 690 MB.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mld.spark.table.s3_access import Reach

#: By the Hadoop that pyspark brings: the AWS SDK that its client for S3 was built with.
_SDK = {"3.4.1": "2.24.6", "3.4.2": "2.29.52", "3.5.0": "2.35.4"}
_HADOOP = re.compile(r"hadoop-client-api-(\d+\.\d+\.\d+)\.jar")
#: Others come with Spark, or are used by nobody here.
EXCLUDED = (
    *("software.amazon.awssdk:bundle", "org.wildfly.openssl:wildfly-openssl"),
    *("io.netty:*", "org.slf4j:*", "commons-codec:*", "commons-logging:*"),
)
PARTS = ("s3", "sts", "s3-transfer-manager")
_ANY_BUCKET = "spark.hadoop.fs.s3a."


def hadoop_version() -> str | None:
    """Of the Hadoop in the installed pyspark; None if there is none."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    names = (path.name for path in (Path(spec.origin).parent / "jars").glob("hadoop-client-api-*"))
    return next((found[1] for name in names if (found := _HADOOP.fullmatch(name))), None)


def s3_packages(hadoop: str) -> tuple[list[str], list[str]]:
    """Maven coordinates of the client for S3, and what is left out of what they ask for.

    Args:
        hadoop: its version. Of one that is not known here the bundle is taken.
    """
    client = f"org.apache.hadoop:hadoop-aws:{hadoop}"
    if (sdk := _SDK.get(hadoop)) is None:
        return [client], []
    return [client, *(f"software.amazon.awssdk:{part}:{sdk}" for part in PARTS)], list(EXCLUDED)


def s3_conf(
    bucket: str, reach: Reach, conf: Mapping[str, str], scratch: Path | None
) -> dict[str, str]:
    """Settings of Hadoop's client for a bucket, but for those that the user has made.

    Args:
        bucket: its name.
        reach: how it is reached.
        conf: the user's ``spark.conf.*``.
        scratch: where parts of files wait on this machine until they are sent; None = on a cluster.
    """
    settings = reach.hadoop()
    if scratch is not None:
        settings["buffer.dir"] = str(scratch)
    ours = f"{_ANY_BUCKET}bucket.{bucket}."
    return {
        f"{ours}{name}": text
        for name, text in settings.items()
        if f"{ours}{name}" not in conf and f"{_ANY_BUCKET}{name}" not in conf
    }
