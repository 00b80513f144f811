"""Starts a worker that ends with the command: ``python -m kcl_mld.acceptance.keeper PROGRAM…``.

Its stdin is a pipe of the command. When that ends, even by ``kill -9``, the worker gets SIGTERM: one
that nobody watches would go on, and cost money. Prints the worker's process id on its stdout, and
ends with the worker, with the exit code as a shell has it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading

#: Above the time that workers take for a stop.
_STOP_S = 60.0


def _end_with_the_command(process: subprocess.Popen[bytes]) -> None:
    while os.read(0, 1024):
        pass
    process.terminate()
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()


def main() -> int:
    """Exit code: 128 + n for signal n."""
    process = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=2)  # noqa: S603 (ours)
    os.write(1, f"{process.pid}\n".encode())
    threading.Thread(target=_end_with_the_command, args=(process,), daemon=True).start()
    code = process.wait()
    return 128 - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
