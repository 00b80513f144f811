"""``conform child -- CMD…``: play the daemon to a real child and judge it.

Every case starts the command anew, in a session of its own, and ends it whatever happens. Rules
``CHILD-nn`` hold for children in any language. The ``PY`` items describe kclpy itself; they are
judged with ``--implementation kclpy`` when the command runs the kit's own ``kclpy_probe.py``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from protocol.conform import child_items, items, kclpy_items
from protocol.conform.peer import Peer, Peers
from protocol.conform.report import Finding, Report, Verdict, not_testable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

Implementation: TypeAlias = Literal["generic", "kclpy"]

#: A day; a system can't wait for what is much longer.
MAX_TIMEOUT_S = 86_400.0


class ChildKit:
    """Runs all cases against one command.

    Args:
        command: program and arguments of the child.
        implementation: which extra items apply.
        timeout_s: limit for each answer, > 0 and at most :data:`MAX_TIMEOUT_S`.
        environment: added to the environment of every child.
        on_stderr: called, from other threads, with what children write to stderr, as it comes.
    """

    def __init__(
        self,
        command: Sequence[str],
        implementation: Implementation = "generic",
        timeout_s: float = 60.0,
        environment: Mapping[str, str] | None = None,
        on_stderr: Callable[[bytes], object] | None = None,
    ) -> None:
        self._command = command
        self._implementation = implementation
        self._timeout_s = timeout_s
        self._environment = dict(environment or {})
        self._on_stderr = on_stderr
        self._said: list[bytes] = []

    @contextmanager
    def peer(self, **environment: str) -> Iterator[Peer]:
        """A fresh child, gone at the end of the block."""
        everything = self._environment | environment
        peer = Peer(self._command, everything, self._timeout_s, self._on_stderr)
        try:
            yield peer
        finally:
            peer.kill()
            self._said.append(bytes(peer.stderr))

    def run(self, progress: Callable[[str], object] = lambda _: None) -> Report:
        """All cases, one after the other.

        Args:
            progress: called with the name of each case before it runs.
        """
        report = Report(item for item in items.load() if item.kit == "child")
        cases: list[Callable[[Peers], Iterator[Finding]]] = [*child_items.CASES]
        if self._implementation == "kclpy":
            cases += kclpy_items.CASES
        else:
            for item in items.load():
                if item.group == "PY":
                    report.add(not_testable(item.id, "describes kclpy only"))
        for case in cases:
            name = case.__name__.replace("_", " ")
            progress(name)
            self._said.clear()
            has_failed = False
            for finding in case(self):
                report.add(finding)
                has_failed |= finding.verdict is Verdict.FAIL
            if has_failed:
                for said in self._said:
                    report.quote(name, said)
        return report
