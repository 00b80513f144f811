"""The files that the embedded Spark server reads: properties, log configuration, repository. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mld.spark.server.settings import SERVER_CLASS

if TYPE_CHECKING:
    from collections.abc import Mapping

_LOG4J = """\
<?xml version="1.0" encoding="UTF-8"?>
<Configuration status="WARN">
  <Appenders>
    <Console name="console" target="SYSTEM_ERR">
      <PatternLayout pattern="%d{{yyyy-MM-dd HH:mm:ss.SSS}} %p spark %c{{1}}: %m%n%ex{{8}}"/>
    </Console>
  </Appenders>
  <Loggers>
    <Root level="{level}"><AppenderRef ref="console"/></Root>
    <Logger name="{server_class}" level="INFO"/>
    <Logger name="org.apache.hadoop.util.NativeCodeLoader" level="ERROR"/>
    <Logger name="org.apache.parquet.hadoop.MemoryManager" level="ERROR"/>
    <Logger name="org.apache.spark.util.Utils" level="ERROR"/>
{silenced}
  </Loggers>
</Configuration>
"""
#: Loggers that repeat the errors that clients get anyway, with values of the data in them.
_TALKATIVE = (
    "org.apache.spark.executor.Executor",
    "org.apache.spark.scheduler.TaskSetManager",
    "org.apache.spark.sql.connect.utils.ErrorUtils",
)
_IVY = """\
<ivysettings>
  <settings defaultResolver="{name}"/>
  <resolvers>
    <ibiblio name="{name}" m2compatible="true"{root}/>
  </resolvers>
</ivysettings>
"""


def properties_text(properties: Mapping[str, str]) -> str:
    """A Java properties file, whatever characters the values hold."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in properties.items())


def _escaped(text: str) -> str:
    written = []
    for character in text:
        if character in " \\:=#!":
            written.append("\\" + character)
        elif " " < character <= "~":
            written.append(character)
        else:
            units = character.encode("utf-16-be")
            pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
            written.extend(f"\\u{pair}" for pair in pairs)
    return "".join(written)


def log4j_text(level: str) -> str:
    """A log configuration that writes to the standard error only.

    Failed tasks and calls are not logged, except with ``DEBUG``: their messages quote the data.
    The client gets them, and says what is fit for a log (``mld.spark.failures.describe``).

    Args:
        level: of ``spark.log.level``.
    """
    names = () if level == "DEBUG" else _TALKATIVE
    silenced = "\n".join(f'    <Logger name="{name}" level="OFF"/>' for name in names)
    return _LOG4J.format(level=level, server_class=SERVER_CLASS, silenced=silenced)


def ivy_text(repository: str | None) -> str:
    """Ivy settings with one repository, and no other before or behind it.

    Spark's own look into the local Maven cache first, which may hold a package's ``.pom`` without its
    ``.jar``: Ivy then takes it for found there, and fails.

    Args:
        repository: URL of a Maven repository; None = Maven Central, which Ivy knows by itself.
    """
    if repository is None:
        return _IVY.format(name="central", root="")
    escaped = repository.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
    return _IVY.format(name="named", root=f' root="{escaped.rstrip("/")}/"')
