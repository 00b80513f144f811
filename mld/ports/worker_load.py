"""How busy the place is in which this worker runs."""

from __future__ import annotations

from typing import Protocol


class LoadSource(Protocol):
    """Measures the CPU of the machine, the task or the container.

    Asked once a second, whoever asks averages.
    """

    @property
    def name(self) -> str:
        """What is measured, for the log, such as ``container (cgroup v2)``."""
        ...

    @property
    def place(self) -> str:
        """What is measured, as others would name it: the same for workers that share it."""
        ...

    async def sample(self) -> float | None:
        """Percent of what may be used, since the last call; 0..100.

        Returns:
            None when it is not known: at the first call, or because the figures could not be
            read, which was logged.
        """
        ...
