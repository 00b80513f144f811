"""The program of the Spark host, one per worker; started by the first stub.

``python -m kcl_mld.spark.host --listen N --daemon PID --lock FILE [--properties FILE] app.py [args…]``, with a bound socket as descriptor N. The host itself is in
:mod:`kcl_mld.spark.worker.worker_host`; if it can't be imported, the stubs that wait get the reason.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import traceback
from typing import TYPE_CHECKING, NoReturn

from kcl_mld.spark.errors import MissingPart, SparkChildError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kcl_mld.spark.parts import SparkParts

_NEXT_STUB_S = 0.5


def main(argv: Sequence[str] | None = None, parts: SparkParts | None = None) -> NoReturn:
    """Run the host; ends the process.

    Args:
        argv: arguments; None = those of the process.
    """
    options = _parse(sys.argv[1:] if argv is None else argv)
    listener = socket.socket(fileno=options.listen)
    listener.set_inheritable(False)
    if os.getsid(0) != os.getpid():
        with contextlib.suppress(PermissionError):
            os.setsid()
    try:
        from kcl_mld.spark.parts import SparkParts  # noqa: PLC0415
        from kcl_mld.spark.worker.worker_host import Host  # noqa: PLC0415

        host = Host(options, listener, parts or SparkParts())
    except SparkChildError as error:
        _refuse(listener, options.lock, error)
    except ImportError as error:
        traceback.print_exc()
        _refuse(listener, options.lock, MissingPart(f"the Spark host can't be imported: {error}"))
    host.run()


def _refuse(listener: socket.socket, lock_path: str, error: SparkChildError) -> NoReturn:
    """Report it to each stub that connects, until none does; then end."""
    listener.settimeout(_NEXT_STUB_S)
    word = json.dumps({"exit": error.exit_code, "message": str(error)}).encode() + b"\n"
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(65_536)
                connection.sendall(word)
    for path in (listener.getsockname(), lock_path):
        with contextlib.suppress(OSError):
            os.unlink(path)
    os._exit(error.exit_code)


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="kcl_mld.spark.host", description="started by kcl-mld-spark"
    )
    parser.add_argument("--listen", type=int, required=True)
    parser.add_argument("--daemon", type=int, required=True)
    parser.add_argument("--lock", required=True)
    parser.add_argument("--properties")
    parser.add_argument("app")
    parser.add_argument("args", nargs=argparse.REMAINDER)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
