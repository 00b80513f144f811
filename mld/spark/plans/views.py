"""Names that a function makes in its session, and why such batches run one at a time.

A session has one view, one function, one variable of a name, and Spark Connect resolves names when
a plan runs. Two functions that say ``df.createOrReplaceTempView("rows")`` one after the other would
both read the rows of the second: the first shard's rows would be lost and the second's be there
twice. The same goes for a view of rows that were collected before, and for ``udf.register`` of
something that knows its shard. So the first view of a batch's rows, and the first name that comes
with another content than before, is held back before it reaches the server, and from then on a
batch is planned and written before the next one's function is called. A view that is the same for
all (a table to join with) does no harm. ``spark.sql("… {rows}", rows=df)`` needs no name and keeps
batches together.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mld.spark.plans.merging import RowsPlaceholder

_log = logging.getLogger(__name__)
#: Views that a sink makes have names that nobody else has.
_OWN = "kcl_mld_"
#: Statements that name something; what they name.
_NAMING = re.compile(
    r"\b(?:create\s+(?:or\s+replace\s+)?(?:(?:global\s+)?temp(?:orary)?\s+)?(?:view|function)"
    r"|declare(?:\s+or\s+replace)?(?:\s+var(?:iable)?)?|set\s+var(?:iable)?)\s+"
    r"(?:if\s+not\s+exists\s+)?([^\s(=]+)",
    re.IGNORECASE,
)


class RowsNamed(BaseException):
    """The function is about to name its rows; no ``except Exception`` of its own keeps this."""


class Views:
    """Watches a process's sessions for names of batches. Safe to use from any thread."""

    def __init__(self) -> None:
        """Batches share jobs until a name is seen that they cannot share."""
        self.alone = False
        self._changed = threading.Condition()
        self._sharing = 0
        self._holder = ""
        self._contents: dict[str, bytes] = {}
        #: Guards the two below, which grow while others look through them.
        self._known = threading.Lock()
        self._batches: weakref.WeakKeyDictionary[RowsPlaceholder, str] = weakref.WeakKeyDictionary()
        self._watched: weakref.WeakSet[Any] = weakref.WeakSet()

    @contextlib.contextmanager
    def share(self) -> Iterator[bool]:
        """The time in which batches are planned and written beside others.

        Yields:
            False if they may not be by now: each needs a turn of its own.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._holder)
            self._sharing += 1
        try:
            yield not self.alone
        finally:
            with self._changed:
                self._sharing -= 1
                if not self._sharing:  # nobody is left who could look a name up
                    self._contents.clear()
                self._changed.notify_all()

    @contextlib.contextmanager
    def turn(self, batch_id: str) -> Iterator[None]:
        """The time in which one batch is planned and written; its function may make names."""
        with self._changed:
            self._changed.wait_for(lambda: not self._holder and not self._sharing)
            self._holder = batch_id
        try:
            yield
        finally:
            with self._changed:
                self._holder = ""
                self._changed.notify_all()

    def note(self, client: Any, placeholder: RowsPlaceholder, batch_id: str) -> None:
        """A function is about to be given the rows of a batch.

        Args:
            client: of the session.
            placeholder: where the batch's rows are in its plans.
            batch_id: whose they are.
        """
        with self._known:
            self._batches[placeholder] = batch_id
            is_new = client not in self._watched
            self._watched.add(client)
        if is_new:
            client.execute_command = self._watching(client.execute_command, lambda command: command)
            client._execute = self._watching(  # noqa: SLF001 - functions are registered by it alone
                client._execute,  # noqa: SLF001
                lambda request: request.plan.command,
            )

    def _watching(
        self, execute: Callable[..., Any], command_of: Callable[[Any], Any]
    ) -> Callable[..., Any]:
        def watched(what: Any, *args: Any, **more: Any) -> Any:
            if (name := _name_in(command_of(what))) is not None:
                self._judge(name, command_of(what))
            return execute(what, *args, **more)

        return watched

    def _judge(self, name: str, command: Any) -> None:
        from mld.spark.plans.merging import content_of, plan_ids  # noqa: PLC0415 - Connect's own modules

        ids = plan_ids(command)
        with self._known:
            batches = list(self._batches.items())
        named = {batch for placeholder, batch in batches if placeholder.plan_id in ids}
        with self._changed:
            if not self._holder and not self._sharing:
                return  # no function of ours is asked: somebody else uses the session
            if self._holder and (not named or self._holder in named):
                return
            content = content_of(command)
            if not named and self._contents.setdefault(name, content) == content:
                return
            did, self.alone = self.alone, True
        if not did:
            _log.warning(
                "the function makes a temporary view of its rows, or a name (%s) that means "
                "something else in each batch, so batches run one at a time from now on; "
                'spark.sql("... {rows}", rows=df) needs no view and is faster',
                name,
            )
        raise RowsNamed


def _name_in(command: Any) -> str | None:
    """What a command names, and how; None if nothing, or by one of our sinks."""
    match command.WhichOneof("command_type"):
        case "create_dataframe_view":
            name = command.create_dataframe_view.name
            return None if name.startswith(_OWN) else f"view {name}".lower()
        case "register_function":
            return f"function {command.register_function.function_name}".lower()
        case "register_table_function":
            return f"function {command.register_table_function.function_name}".lower()
        case "sql_command":
            found = _NAMING.search(_text_of(command.sql_command))
            return None if found is None else f"sql {found[1]}".lower()
        case _:
            return None


def _text_of(statement: Any) -> str:
    """The SQL text of a statement, which has frames beside it or not."""
    relation = statement.input
    if relation.WhichOneof("rel_type") == "with_relations":
        relation = relation.with_relations.root
    return str(relation.sql.query or statement.sql)
