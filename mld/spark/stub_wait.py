"""What a stub is while it waits: a bare interpreter with one socket.

``python -I -S stub_wait.py FD SECONDS kcl_mld.spark.stub app.py…``. The stub becomes this program once the host
has its pipes: without site-packages and almost without imports it takes half the memory, and one of
it lives per shard.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

#: As in ``kcl_mld.spark.errors``: an error of the software.
BROKEN = 70
#: As in ``kcl_mld.spark.keep_alive``.
KEEP_ALIVE = b'{"action":"leaseLost"}\n'
#: What ends a process so that it can't say why.
GONE_ADVICE = "it was killed, or broke down; see the kernel's log for a lack of memory"
#: A host that has not answered in that time hangs.
_LONGEST_S = 120.0


def show_life(descriptor: int, every_s: float) -> None:
    """Start the daemon's time-out, at once and again and again until the host answers.

    The first one also tells kcl-mld that nothing has begun: it ends this child by the end of its
    input if the shard is given up before ``initialize`` is answered.

    From then on stdout, which it has a duplicate of, is the host's alone.

    Args:
        descriptor: of the socket to the host.
        every_s: how often, in s.
    """
    import select  # noqa: PLC0415 - not in the parent, which imports this for ``end``

    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    try:
        for _ in range(int(_LONGEST_S / every_s)):
            os.write(1, KEEP_ALIVE)
            if poll.poll(every_s * 1000):
                break
    except OSError:
        pass  # the daemon is gone; the host will notice
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def wait(descriptor: int) -> tuple[int, str]:
    """Read what the host says until it ends.

    Returns:
        exit code and a message, which may be empty.
    """
    received = b""
    try:
        while chunk := os.read(descriptor, 65_536):
            received += chunk
    except OSError:
        pass  # the host is gone; what it said counts
    import json  # noqa: PLC0415 - only now, at the end

    words = [json.loads(line) for line in received.rpartition(b"\n")[0].splitlines()]
    if words and "exit" in words[-1]:
        return words[-1]["exit"], words[-1]["message"]
    host = f" (pid {words[0]['host']})" if words and "host" in words[0] else ""
    return BROKEN, f"the Spark host{host} went away without a word: {GONE_ADVICE}"


def end(code: int, message: str) -> NoReturn:
    """Write the last line, if there is one, and end the process; its reader may have ended."""
    if message:
        try:
            line = " ".join(message.split())  # the daemon quotes one line of it
            os.write(2, f"kcl-mld-spark: {line}\n".encode(errors="replace"))
        except OSError:
            code = code or BROKEN
    os._exit(code)


def main() -> NoReturn:
    """Wait on the socket that the command line names; ends the process."""
    import _signal  # type: ignore[import-not-found] # noqa: PLC0415 - without its enums

    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # no traceback for Ctrl-C
    descriptor = int(sys.argv[1])
    show_life(descriptor, float(sys.argv[2]))
    end(*wait(descriptor))


if __name__ == "__main__":
    main()
