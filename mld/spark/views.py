"""Temporary views that a function makes of its rows, and why such batches run one at a time.

A session has one view of a name, and Spark Connect resolves names when a plan runs. Two functions
that say ``df.createOrReplaceTempView("rows")`` one after the other would both read the rows of the
second: the first shard's rows would be lost and the second's be there twice. So the first view of
a batch's rows is held back before it reaches the server, and from then on a batch is planned and
written before the next one's function is called. ``spark.sql("… {rows}", rows=df)`` needs no name
and keeps batches together.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mld.spark.plans import Seam

_log = logging.getLogger(__name__)
#: Views that a sink makes have names that nobody else has.
_OWN = "kcl_mld_"


class RowsNamed(BaseException):
    """The function is about to name its rows; no ``except Exception`` of its own keeps this."""


class Views:
    """Watches a process's sessions for views of batches. Safe to use from any thread."""

    def __init__(self) -> None:
        """Batches share jobs until a view is seen."""
        self.alone = False
        self._turn = threading.Lock()
        self._holder = ""
        self._batches: weakref.WeakKeyDictionary[Seam, str] = weakref.WeakKeyDictionary()
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()

    @contextlib.contextmanager
    def turn(self, batch_id: str) -> Iterator[None]:
        """The time in which one batch is planned and written; its function may make views."""
        with self._turn:
            self._holder = batch_id
            try:
                yield
            finally:
                self._holder = ""

    def note(self, client: Any, seam: Seam, batch_id: str) -> None:
        """A function is about to be given the rows of a batch.

        Args:
            client: of the session.
            seam: where the batch's rows are in its plans.
            batch_id: whose they are.
        """
        self._batches[seam] = batch_id
        if client not in self._watched:
            self._watched.add(client)
            client.execute_command = self._watching(client.execute_command)

    def _watching(self, execute: Callable[..., Any]) -> Callable[..., Any]:
        def execute_command(command: Any, *args: Any, **more: Any) -> Any:
            if _makes_view(command):
                self._judge(command)
            return execute(command, *args, **more)

        return execute_command

    def _judge(self, view: Any) -> None:
        from mld.spark.plans import plan_ids  # noqa: PLC0415 - Connect's own modules

        ids = plan_ids(view)
        named = {batch for seam, batch in list(self._batches.items()) if seam.plan_id in ids}
        if not named or self._holder in named:
            return
        if not self.alone:
            self.alone = True
            _log.warning(
                "the function makes a temporary view of its rows, so batches run one at a time "
                'from now on; spark.sql("... {rows}", rows=df) needs no view and is faster'
            )
        raise RowsNamed


def _makes_view(command: Any) -> bool:
    """SQL text makes none: Spark takes no frames in ``CREATE VIEW``."""
    return bool(
        command.HasField("create_dataframe_view")
        and not command.create_dataframe_view.name.startswith(_OWN)
    )
