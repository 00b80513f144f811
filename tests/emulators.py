"""Other people's emulators, fetched once into ``.cache/emulators``: ``python -m tests.emulators``.

The contract suite runs against those it finds there; it fetches them itself only where
``KCL_MLD_EMULATORS=1`` is set.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE = Path(__file__).resolve().parents[1] / ".cache" / "emulators"
#: A JVM on a busy machine takes its time.
_START_TIMEOUT_S = 180
_KINESIS_LOCAL = "kinesis-local@0.6.2"
_DYNAMODB_LOCAL = ("com.amazonaws", "DynamoDBLocal", "2.6.1")
#: DynamoDB Local with its test control, which its command line does not offer.
_CONTROLLED = Path(__file__).resolve().parent / "data/dynamodb_streams/ControlledServer.java"
_POM = """<project>
<modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies><dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
</dependency></dependencies></project>
"""


@dataclass(frozen=True)
class Kind:
    """An emulator: what it needs, where it lies, how to fetch and start it."""

    name: str
    needs: tuple[str, ...]
    fetcher: str
    marker: Path
    fetch: Callable[[], None]
    command: Callable[[int, int], list[str]]
    folder: Path
    environment: Callable[[int, int], dict[str, str]] = lambda _port, _spare: {}

    def fetch_if_missing(self) -> None:
        """Fetch it unless it is there or the program for that is not; others wait meanwhile."""
        CACHE.mkdir(parents=True, exist_ok=True)
        with (CACHE / f"{self.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self.marker.exists() and shutil.which(self.fetcher) is not None:
                self.fetch()

    def missing(self) -> str | None:
        """Why it cannot be started, or None."""
        for program in self.needs:
            if shutil.which(program) is None:
                return f"{self.name} needs {program}"
        if not self.marker.exists():
            return f"{self.name} is not there: run python -m tests.emulators"
        return None


def _fetch_kinesis_local() -> None:
    folder = CACHE / "kinesis-local"
    folder.mkdir(parents=True, exist_ok=True)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder)]
    subprocess.run([*command, _KINESIS_LOCAL], check=True, cwd=folder)


def _fetch_dynamodb_local() -> None:
    folder = CACHE / "dynamodb-local"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_POM.format(*_DYNAMODB_LOCAL))
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
    subprocess.run(command, check=True, cwd=folder)


def _compile_controlled() -> None:
    DYNAMODB_LOCAL.fetch_if_missing()
    if DYNAMODB_LOCAL.missing():
        return
    folder = CACHE / "dynamodb-local"
    command = ["javac", "-cp", "lib/*", "-d", "controlled", str(_CONTROLLED)]
    subprocess.run(command, check=True, cwd=folder)


KINESIS_LOCAL = Kind(
    "kinesis-local",
    ("node",),
    "npm",
    CACHE / "kinesis-local/node_modules/kinesis-local/main.js",
    _fetch_kinesis_local,
    lambda _port, _spare: ["node", "main.js"],
    CACHE / "kinesis-local/node_modules/kinesis-local",
    lambda port, spare: {
        "KINESIS_MOCK_PLAIN_PORT": str(port),
        "KINESIS_MOCK_TLS_PORT": str(spare),
        "LOG_LEVEL": "ERROR",
        "SHARD_LIMIT": "1000",
    },
)
DYNAMODB_LOCAL = Kind(
    "dynamodb-local",
    ("java",),
    "mvn",
    CACHE / "dynamodb-local/lib/DynamoDBLocal-2.6.1.jar",
    _fetch_dynamodb_local,
    lambda port, _spare: [
        *("java", "-Djava.library.path=lib", "-cp", "lib/*"),
        *("com.amazonaws.services.dynamodbv2.local.main.ServerRunner", "-inMemory"),
        *("-port", str(port)),
    ],
    CACHE / "dynamodb-local",
)

#: A PutItem to its table ``[TEST_CONTROL]`` replaces shards, or makes all of them older.
CONTROLLED_DYNAMODB_LOCAL = Kind(
    "controlled-dynamodb-local",
    ("java",),
    "javac",
    CACHE / "dynamodb-local/controlled/com/amazonaws/services/dynamodbv2/local/server"
    "/ControlledServer.class",
    _compile_controlled,
    lambda port, _spare: [
        *("java", "-Djava.library.path=lib", "-cp", "lib/*:controlled"),
        *("com.amazonaws.services.dynamodbv2.local.server.ControlledServer", str(port)),
    ],
    CACHE / "dynamodb-local",
)


class Emulator:
    """One emulator running on a free loopback port; a context manager."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        port, spare = _free_port(), _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            self._kind.command(port, spare),
            cwd=self._kind.folder,
            env={**os.environ, **self._kind.environment(port, spare)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                return self
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"{self._kind.name} did not start")
            time.sleep(0.05)

    def __exit__(self, *_args: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> int:
    """Fetch what is missing and can be fetched; say what cannot."""
    for kind in (KINESIS_LOCAL, DYNAMODB_LOCAL, CONTROLLED_DYNAMODB_LOCAL):
        kind.fetch_if_missing()
        print(kind.missing() or f"{kind.name}: there")
    return 0


if __name__ == "__main__":
    sys.exit(main())
