"""A Java MultiLangDaemon of the user, as a worker beside ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kcl_mld.acceptance.fleet import StageFailed

if TYPE_CHECKING:
    from pathlib import Path

#: Rows that Java workers of 2.x and of 3.x can read, and no upgrade.
OUR_PROMISE = {
    "retrievalMode": "POLLING",
    "clientVersionConfig": "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X_PHASE1",
}
_JAVA_PROMISE = "CLIENT_VERSION_CONFIG_COMPATIBLE_WITH_2X"
_MAIN = "software.amazon.kinesis.multilang.MultiLangDaemon"
_JAR = re.compile(r"amazon-kinesis-client-multilang-(\d+)\.(\d+)[^/]*\.jar")
#: Before it Java builds credentials providers of the first SDK only.
_SECOND_SDK = (2, 7)


def java_worker(java: str, jars: Path) -> tuple[list[str], dict[str, str]]:
    """Its command, which the name of a properties file follows, and what differs in that file.

    Raises:
        StageFailed: there is no MultiLangDaemon among the jars, or it is one of KCL 1.x.
    """
    found = (_JAR.fullmatch(path.name) for path in jars.glob("*.jar"))
    versions = sorted((int(one[1]), int(one[2])) for one in found if one is not None)
    if not versions:
        raise StageFailed(f"{jars} has no amazon-kinesis-client-multilang-*.jar")
    if versions[-1] < (2, 0):
        raise StageFailed(f"{jars} has the MultiLangDaemon of KCL 1.x")
    changes = {"clientVersionConfig": _JAVA_PROMISE}
    if versions[-1] < _SECOND_SDK:
        changes["AWSCredentialsProvider"] = "DefaultAWSCredentialsProviderChain"
    return [java, "-cp", f"{jars}/*", _MAIN, "--properties-file"], changes
