"""A ``credential_process`` has a minute to end; botocore waits for it for ever."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING, Any

from botocore.credentials import ProcessProvider
from botocore.exceptions import CredentialRetrievalError

from mld.adapters.aws.profile_providers import change_providers

if TYPE_CHECKING:
    from botocore.credentials import CredentialResolver

#: For the program, and for whatever holds the pipes that it was given.
LIMIT_S = 60.0
#: A process that was killed is gone sooner, unless the system can't end it now.
_GONE_S = 1.0


class LimitedProcess(subprocess.Popen[bytes]):
    """A program whose answer comes in time or not at all."""

    def communicate(self, *_: Any, **__: Any) -> tuple[bytes, bytes]:
        """What it has said on both pipes.

        Raises:
            CredentialRetrievalError: it took too long, and was killed; what it has started itself
                was not.
        """
        try:
            return super().communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.wait(_GONE_S)
            for pipe in (self.stdout, self.stderr):
                if pipe is not None:
                    pipe.close()
            raise CredentialRetrievalError(
                provider=ProcessProvider.METHOD,
                error_msg=f'the program "{self._name()}" did not end within {LIMIT_S:g} s, and was'
                " killed",
            ) from None

    def _name(self) -> str:
        """Without its arguments: a password may be among them."""
        command: Any = self.args
        return f"{command[0]} ..." if len(command) > 1 else str(command[0])


def limit_processes(chain: CredentialResolver) -> None:
    """Let the programs of a chain of botocore, also those behind its roles, be limited ones."""
    change_providers(chain, ProcessProvider, "_create_process_provider", _limit)


def _limit(provider: Any) -> Any:
    provider._popen = LimitedProcess  # noqa: SLF001
    return provider
