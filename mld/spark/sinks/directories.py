"""Rows made ready for directories named by the values of partition columns.

A directory's name must say the value exactly, wherever Spark runs: Spark writes a timestamp in the
time zone of the session, which a reader takes for UTC. And what can't be a name is told here, for
Spark says only that a task failed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mld.spark.table.footers import NULL_DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

#: Longest name of a directory on the usual file systems.
_NAME_BYTES = 255
#: What Spark escapes, by three characters each (ExternalCatalogUtils.charToEscape); for Java.
_ESCAPED = r"""[\x01-\x1f"#%\x27*/:=?\\{\[\]^\x7f]"""
_UNFIT = "kcl-mld: no name of a directory"
_UNFIT_MESSAGE = re.compile(rf"{_UNFIT} <(\d+)>")


@dataclass(frozen=True, slots=True)
class DirectoryLayout:
    """How rows are laid into directories.

    Attributes:
        types: Delta's types of the partition columns, by name, in order.
    """

    types: Mapping[str, str]

    def apply(self, rows: DataFrame) -> DataFrame:
        """The rows with values in these columns of which Spark makes the right names."""
        values = {
            name: text
            for number, name in enumerate(self.types)
            if (text := self._value(number, name)) is not None
        }
        if not values:
            return rows
        others = f"* except ({', '.join(map(_quoted, values))})"
        # Without ``withColumns`` nobody needs a session to try this.
        return rows.selectExpr(others, *(f"{v} as {_quoted(k)}" for k, v in values.items()))

    def unfit_column(self, error: BaseException) -> str | None:
        """The partition column with a value that is no name, if that made Spark fail."""
        found = _UNFIT_MESSAGE.search(str(error))
        return None if found is None else list(self.types)[int(found[1])]

    def _value(self, number: int, name: str) -> str | None:
        """SQL of what stands in place of a column; None = the column itself."""
        column = _quoted(name)
        match self.types[name]:
            case "timestamp":
                # Without a zone, so that no hour is skipped or there twice; Delta's writer has the
                # same names.
                return (
                    "cast(timestamp_ntz'1970-01-01 00:00:00' + interval '0 00:00:00.000001' day to "
                    f"second * unix_micros({column}) as string)"
                )
            case "string":
                room = _NAME_BYTES - 1 - len(re.sub(_ESCAPED, "%00", name).encode())
                return (
                    f"case when octet_length(regexp_replace({column}, r'{_ESCAPED}', '%00')) > "
                    f"{room} or contains({column}, char(0)) or {column} = '{NULL_DIRECTORY}' then "
                    f"raise_error('{_UNFIT} <{number}>') else {column} end"
                )
            case _:
                return None


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
