"""What a child learns of its shard: the one place for the daemon and the conformance kit.

The Java daemon passes only the shard id. Programs that know these variables, keys and placeholders
may use them; others are not affected. The stream is passed in three ways, because not every
language and library can use each of them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kcl_mld.config.config import ChildFailurePolicy
from kcl_mld_protocol.additions import (
    CAPABILITIES,
    CAPABILITIES_VARIABLE,
    FAILURE,
    SCHEMAS_VARIABLE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kcl_mld.config.config import ChildConfig

_PLACEHOLDER = re.compile(r"\{([A-Za-z]+)\}")
_PATH_SEPARATOR = ":"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildFacts:
    """What a child learns of its shard and its daemon before the first message.

    Attributes:
        shard_id: bare shard id.
        stream_arn: of one of many streams; None with a single one.
        stream_identifier: ``account:stream:epoch`` of one of many streams; None with a single one.
        application_name: ``applicationName``.
        announced: protocol additions that the daemon supports.
        answer_timeout_s: ``timeoutInSeconds``, or None.
        schemas: folder with the definitions of schemas, or None.
        spark: the file's ``spark.*`` keys; may hold secrets.
        child: which of several children of the shard it is, from 0; None for the only one.
        children: of the shard.
    """

    shard_id: str
    lease_key: str
    stream_name: str
    application_name: str
    worker_id: str
    pid: int
    announced: frozenset[str] = frozenset()
    answer_timeout_s: float | None = None
    schemas: str | None = None
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    stream_arn: str | None = None
    stream_identifier: str | None = None
    child: int | None = None
    children: int = 1

    def variables(self) -> dict[str, str]:
        """The environment variables for these facts; absent facts have none."""
        variables = {
            "KCL_SHARD_ID": self.shard_id,
            "KCL_LEASE_KEY": self.lease_key,
            "KCL_STREAM_NAME": self.stream_name,
            "KCL_APPLICATION_NAME": self.application_name,
            "KCL_WORKER_ID": self.worker_id,
            "KCL_MLD_PID": str(self.pid),
        }
        if self.announced:
            variables[CAPABILITIES_VARIABLE] = ",".join(sorted(self.announced))
        if self.answer_timeout_s is not None:
            variables["KCL_MLD_TIMEOUT_S"] = f"{self.answer_timeout_s:.15g}"
        if self.schemas is not None:
            variables[SCHEMAS_VARIABLE] = self.schemas
        if self.spark:
            variables["KCL_MLD_SPARK"] = json.dumps(dict(self.spark))
        if self.stream_identifier is not None:
            variables["KCL_MULTI_STREAM"] = "true"
            variables["KCL_STREAM_IDENTIFIER"] = self.stream_identifier
            variables["KCL_STREAM_ARN"] = self.stream_arn or ""
        if self.children > 1:
            variables["KCL_MLD_CHILD"] = str(self.child)
            variables["KCL_MLD_CHILDREN"] = str(self.children)
        return variables

    def extras(self) -> dict[str, str]:
        """Further keys of ``initialize``; none with a single stream, whose bytes are Java's."""
        if self.stream_identifier is None:
            return {}
        return {
            "streamIdentifier": self.stream_identifier,
            "streamName": self.stream_name,
            "streamArn": self.stream_arn or "",
            "leaseKey": self.lease_key,
        }

    def command(self, argv: Sequence[str]) -> tuple[str, ...]:
        """Program and arguments with their placeholders filled in, each as one argument.

        With several children of a shard ``{childIndex}`` is replaced, with several streams their
        placeholders are, and nothing else in braces.
        """
        values = {"childIndex": str(self.child)} if self.children > 1 else {}
        if self.stream_identifier is not None:
            values |= {
                "streamName": self.stream_name,
                "streamArn": self.stream_arn or "",
                "streamIdentifier": self.stream_identifier,
                "shardId": self.shard_id,
                "leaseKey": self.lease_key,
                "applicationName": self.application_name,
            }
        return tuple(
            _PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), word) for word in argv
        )


def announced_to(config: ChildConfig) -> frozenset[str]:
    """The additions to the protocol that a child may use."""
    if config.failure_policy is ChildFailurePolicy.DEADLETTER:
        return CAPABILITIES
    return CAPABILITIES - {FAILURE}


@dataclass(frozen=True, slots=True)
class PythonPath:
    """Folders that a child gets in ``PYTHONPATH`` in addition to existing ones.

    Attributes:
        first: before all others; None = none.
        last: after all others; None = none.
    """

    first: str | None = None
    last: str | None = None


def environment_of_child(
    inherited: Mapping[str, str], added: Mapping[str, str], path: PythonPath
) -> dict[str, str]:
    """The whole environment of a child.

    Args:
        added: overrides ``inherited``.
    """
    environment = {**inherited, **added}
    parts = [path.first, environment.get("PYTHONPATH") or None, path.last]
    if path != PythonPath():
        environment["PYTHONPATH"] = _PATH_SEPARATOR.join(filter(None, parts))
    return environment
