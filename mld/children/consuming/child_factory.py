"""Makes the children of one hold of a lease: their command, their environment, their exceptions."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from kcl_mld.children.model.child_name import ChildName
from kcl_mld.children.record_processor import RecordProcessor
from kcl_mld.children.rules.child_environment import ChildFacts, announced_to
from kcl_mld.config.config import ChildExceptionPolicy
from kcl_mld.errors import ProcessorRaised
from kcl_mld.signals.model.metrics import PROCESSOR_EXCEPTIONS
from kcl_mld_protocol import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from kcl_mld.children.consuming.consumer_context import ConsumerContext
    from kcl_mld.children.ports import Checkpointer
    from kcl_mld.kernel.model.sequence import ExtendedSequenceNumber

log = logging.getLogger("mld.children")

#: First and last position given to a child that has not answered; None without records.
Delivering: TypeAlias = "tuple[ExtendedSequenceNumber, ExtendedSequenceNumber] | None"


class ChildFactory:
    """Makes processors, and counts the exceptions after which their programs continued.

    Attributes:
        exceptions: number of the processors' exceptions after which the child continued.
        exception_at: reading of ``Clock.monotonic`` at the last of them; None without one.

    Args:
        contains: an exception with records is a failure, because a record may have caused it.
    """

    def __init__(self, context: ConsumerContext, *, contains: bool) -> None:
        self._context = context
        self._contains = contains
        self._parts = context.parts
        self.exceptions = 0
        self.exception_at: float | None = None

    def make(
        self,
        checkpointer: Checkpointer,
        delivering: Callable[[], Delivering],
        child: int | None = None,
    ) -> RecordProcessor:
        """A child that is not started yet.

        Args:
            delivering: what it was given and has not answered.
            child: its index among several of the shard; None = it is the only one.
        """
        context, parts, config = self._context, self._parts, self._parts.config
        stream = context.stream_context.stream
        facts = ChildFacts(
            shard_id=context.shard_id,
            lease_key=context.lease_key,
            stream_name=stream.name,
            application_name=config.application_name,
            worker_id=config.worker_id,
            pid=parts.pid,
            announced=announced_to(config.child),
            answer_timeout_s=config.child.answer_timeout_s,
            schemas=None if parts.schemas is None else parts.schemas.files.folder,
            spark=config.spark,
            stream_arn=stream.arn,
            stream_identifier=stream.identifier,
            child=child,
            children=1 if child is None else context.children,
        )
        argv = context.stream_context.argv or config.child.argv
        tells_stream = config.streams is not None and config.streams.tells_stream
        name = ChildName(context.shard_id, child)
        processor = RecordProcessor(
            name,
            replace(config.child, argv=facts.command(argv)),
            parts.launcher,
            checkpointer,
            parts.runtime.clock,
            facts.variables(),
            facts.extras() if tells_stream else {},
            lambda action, exception: self._caught(name, action, exception, delivering()),
        )
        if config.contain is not None and config.contain.with_stderr:
            processor.keep_stderr()
        return processor

    def _caught(
        self, name: ChildName, action: Action, exception: str, delivering: Delivering
    ) -> None:
        """Handle a processor's exception after which the child continues.

        For Java, the action succeeded.

        Raises:
            ChildFailed: the configuration makes it a failure. Not for a lost lease, for which
                nothing can be lost any more.
        """
        context = self._context
        self.exceptions += 1
        self.exception_at = self._parts.runtime.clock.monotonic()
        context.metrics.add(PROCESSOR_EXCEPTIONS, 1)
        why = f"its processor raised an exception: {exception}"
        if delivering is not None:
            first, last = delivering
            why += f"; records {first} to {last} may not be processed"
        context.last_error = f"{name}: {action}: {why}"
        policy = self._parts.config.child.exception_policy
        is_contained = self._contains and delivering is not None
        if action is not Action.LEASE_LOST and (
            policy is ChildExceptionPolicy.FAIL or is_contained
        ):
            raise ProcessorRaised(str(name), str(action), why, None)
        log.error("%s", context.last_error, extra=name.facts)
