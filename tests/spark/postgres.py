"""A PostgreSQL server of one's own on loopback, from the binaries of the machine."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 60


@dataclass(frozen=True)
class Postgres:
    """A running server with one superuser ``kcl`` and database ``postgres``."""

    port: int
    password: str
    directory: Path
    run_as: tuple[str, ...]
    binaries: Path

    @property
    def url(self) -> str:
        return f"jdbc:postgresql://127.0.0.1:{self.port}/postgres?user=kcl&password={self.password}"

    def connect(self):
        import psycopg  # noqa: PLC0415

        return psycopg.connect(
            host="127.0.0.1", port=self.port, dbname="postgres", user="kcl", password=self.password
        )

    def query(self, sql: str, *values):
        with self.connect() as connection:
            return connection.execute(sql, values).fetchall()

    def execute(self, sql: str) -> None:
        with self.connect() as connection:
            connection.execute(sql)

    def copied_out(self, table: str) -> list[str]:
        """Rows of a table, as pg_dump writes them."""
        options = ["-h", "127.0.0.1", "-p", str(self.port), "-U", "kcl", "--data-only", "-t", table]
        found = subprocess.run(
            [self.binaries / "pg_dump", *options, "postgres"],
            check=True,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            env={"PGPASSWORD": self.password},
        )
        lines = found.stdout.splitlines()
        begin = next(n for n, line in enumerate(lines) if line.startswith("COPY "))
        return lines[begin + 1 : lines.index("\\.", begin)]

    def control(self, *arguments: str) -> None:
        command = [*self.run_as, str(self.binaries / "pg_ctl"), "-D", str(self.directory / "data")]
        subprocess.run(
            [*command, "-w", *arguments],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            cwd="/",
        )

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k {self.directory} -F"
        self.control("-l", str(self.directory / "log"), "-o", options, "start")

    def stop(self) -> None:
        self.control("-m", "immediate", "stop")


def why_not() -> str | None:
    """Why no server can be started here; None if one can."""
    if _binaries() is None:
        return "no initdb and pg_ctl of PostgreSQL on this machine"
    if os.geteuid() == 0 and (_user() is None or shutil.which("setpriv") is None):
        return "PostgreSQL refuses root, and there is no user postgres or nobody to become"
    return None


@contextlib.contextmanager
def running_postgres():
    """A fresh server; gone with its files at the end."""
    directory = Path(tempfile.mkdtemp(prefix="kclpg"))
    user = _user()
    as_root = os.geteuid() == 0
    run_as = (
        ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
        if as_root
        else ()
    )
    if as_root:
        os.chown(directory, user.pw_uid, user.pw_gid)
    server = Postgres(_free_port(), secrets.token_hex(8), directory, run_as, _binaries())
    try:
        _initialize(server)
        server.start()
        try:
            yield server
        finally:
            with contextlib.suppress(subprocess.SubprocessError):
                server.stop()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _initialize(server: Postgres) -> None:
    secret = server.directory / "secret"
    secret.write_text(server.password)
    secret.chmod(0o644)
    command = [
        *server.run_as,
        str(server.binaries / "initdb"),
        "-D",
        str(server.directory / "data"),
    ]
    subprocess.run(
        [*command, "-U", "kcl", "-A", "scram-sha-256", f"--pwfile={secret}", "-E", "UTF8", "-N"],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        timeout=_TIMEOUT_S,
        cwd="/",
    )


def _binaries() -> Path | None:
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    places += [Path(found).resolve().parent] if found else []
    for place in places:
        if all((place / name).exists() for name in ("initdb", "pg_ctl", "postgres")):
            return place
    return None


def _user():
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
