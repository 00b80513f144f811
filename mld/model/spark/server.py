"""What an embedded Spark server does not take: settings, options of its JVM. Pure.

The daemon tells it at its start, and the Spark host before it launches Java.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from mld.model.spark.addresses import is_local_master

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

#: Environment variable with the URL of the Maven repository that ``spark.jars.packages`` come from.
REPOSITORY_VARIABLE = "KCL_MLD_MAVEN_REPOSITORY"
#: Keys of ``spark.conf.*`` that would break a promise or have no effect, and what to use instead.
REFUSED_CONF: Mapping[str, str] = {
    "spark.connect.grpc.binding.address": "the server listens on loopback only",
    "spark.connect.grpc.binding.port": "the server takes a free port",
    "spark.connect.authenticate.token": "the server draws its own token",
    "spark.driver.memory": "write it as spark.driver.memory, without conf",
    "spark.driver.extraJavaOptions": "write it as spark.jvm.options",
    "spark.driver.extraClassPath": "write it as spark.conf.spark.jars",
    "spark.jars.ivySettings": f"name the repository in the environment, {REPOSITORY_VARIABLE}",
    "spark.jars.repositories": f"name the repository in the environment, {REPOSITORY_VARIABLE}",
    "spark.master": "write it as spark.master, without conf",
    "spark.remote": "write it as spark.remote, without conf",
    "spark.submit.deployMode": "the server runs beside the workers of the daemon",
}
_REFUSED_WITH_LOCAL_MASTER: Mapping[str, str] = {
    "spark.driver.bindAddress": "with a local master everything stays on loopback",
    "spark.driver.host": "with a local master everything stays on loopback",
}


def refused_conf(names: Iterable[str], master: str) -> Iterator[tuple[str, str]]:
    """The settings that have no place in a server of our own, each with what to do instead.

    Args:
        names: of ``spark.conf.*``, without that prefix.
        master: of the server.
    """
    local = _REFUSED_WITH_LOCAL_MASTER if is_local_master(master) else {}
    refused = {**REFUSED_CONF, **local}
    return ((name, refused[name]) for name in names if name in refused)


def option_words(text: str) -> list[str]:
    """Options of a JVM as words; quotes keep blanks together, as in a shell.

    Raises:
        ValueError: a quote is not closed.
    """
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ValueError(f"can't be split into words: {error}") from error
