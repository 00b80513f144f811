"""Where the Spark host of a worker listens, and who starts it. Standard library only.

One host serves all shards of one worker and app. Its name is made of the daemon's process id and
the time that process started (a number that is used again is another worker), the app with its
arguments, and the Python that runs it. A stub takes a lock, connects, and if no host
answers binds the socket itself and hands it to a new host: so a child may connect at once and wait
while the host starts, and N children at the same moment start one.

Imported by the stub: what is imported here is in the memory of every shard.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import zlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: The shortest of the systems (108 bytes on Linux, 104 on the BSDs), less the terminating zero.
_LONGEST_PATH = 103
_BACKLOG = 4096


class HostPlace:
    """Where one host listens.

    Attributes:
        socket_path: of the unix socket.
        lock_path: of the file whose lock decides who starts a host.
        daemon_pid: of the process whose end is the host's end.
    """

    __slots__ = ("daemon_pid", "lock_path", "socket_path")

    def __init__(self, directory: str, name: str, daemon_pid: int) -> None:
        stem = os.path.join(directory, name)
        self.socket_path = f"{stem}.sock"
        self.lock_path = f"{stem}.lock"
        self.daemon_pid = daemon_pid


def place_of(environ: Mapping[str, str], parent_pid: int, words: Sequence[str]) -> HostPlace:
    """The place of a worker's host; its directory exists afterwards.

    Args:
        environ: of the child; ``KCL_MLD_PID`` names the daemon.
        parent_pid: taken for the daemon where the environment doesn't name it.
        words: what else tells hosts apart: python, file, app, arguments.

    Raises:
        OSError: no private directory can be made.
    """
    named = environ.get("KCL_MLD_PID", "")
    daemon_pid = int(named) if named.isascii() and named.isdigit() else parent_pid
    identity = "\0".join((start_time(daemon_pid), *words)).encode(errors="surrogateescape")
    name = f"{daemon_pid}-{zlib.crc32(identity):08x}{zlib.adler32(identity):08x}"
    return HostPlace(private_directory(environ, longest=len(f"/{name}.sock")), name, daemon_pid)


def start_time(pid: int) -> str:
    """When a process was started, in the kernel's ticks; "" where that can't be known."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except (OSError, IndexError):
        return ""


def private_directory(environ: Mapping[str, str], longest: int = 0) -> str:
    """A directory that only this user can enter, made if need be.

    Args:
        environ: ``XDG_RUNTIME_DIR``, then ``TMPDIR`` say where.
        longest: length of the names in it; a place where they don't fit is passed over.

    Raises:
        OSError: every place belongs to somebody else or can't be written.
    """
    refused = []
    for base in (environ.get("XDG_RUNTIME_DIR"), environ.get("TMPDIR"), "/tmp"):  # noqa: S108
        if not base or not os.path.isdir(base):
            continue
        path = os.path.join(base, f"kcl-mld-{os.getuid()}")
        if len(os.fsencode(path)) + longest > _LONGEST_PATH:
            continue
        with contextlib.suppress(FileExistsError, PermissionError):
            os.mkdir(path, 0o700)
        try:
            found = os.lstat(path)
        except OSError:
            continue
        if found.st_uid == os.getuid() and found.st_mode & 0o170777 == 0o040700:
            return path
        refused.append(path)
    raise PermissionError(
        f"no private directory for the Spark host: {', '.join(refused) or 'XDG_RUNTIME_DIR'} "
        f"must be a directory of this user with mode 0700"
    )


@contextlib.contextmanager
def locked(path: str, *, blocking: bool = True) -> Iterator[bool]:
    """Hold the lock of a place; a file that was removed meanwhile is not it.

    Args:
        blocking: False: do not wait.

    Yields:
        whether it is held; always True if ``blocking``.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            if _is_still(path, descriptor):
                yield True
                return
        finally:
            os.close(descriptor)


def _is_still(path: str, descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    return False


def attach(
    place: HostPlace, host_command: Sequence[str], hello: bytes, descriptors: Sequence[int]
) -> socket.socket:
    """Connect to the worker's host and hand over descriptors; a host is started if none is there.

    Args:
        host_command: starts one; ``--listen N --daemon PID --lock FILE`` are added in front of
            the first argument after the module's name.
        descriptors: that the host gets duplicates of.

    Returns:
        the connection; its first line names the host, its last one how to end.

    Raises:
        OSError: the host can't be started, or went away at that moment.
    """
    with locked(place.lock_path):
        connection = _connect(place.socket_path)
        if connection is None:
            _start(place, host_command)
            connection = _connect(place.socket_path)
        if connection is None:
            raise ConnectionRefusedError("the Spark host ended while it started")
        socket.send_fds(connection, [hello], list(descriptors))
    return connection


def _connect(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def _start(place: HostPlace, command: Sequence[str]) -> None:
    """Bind the socket and start a host on it, away from our session and our stdin and stdout."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(place.socket_path)  # of a host that was killed
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(place.socket_path)
        listener.listen(_BACKLOG)
        listener.set_inheritable(True)
        options = ["--listen", str(listener.fileno()), "--daemon", str(place.daemon_pid)]
        _spawn([*command[:1], *_with_options(command[1:], [*options, "--lock", place.lock_path])])


def _with_options(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    at = arguments.index("-m") + 2
    return [*arguments[:at], *options, *arguments[at:]]


def environ_of_host(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a host that a stub with this one starts.

    A host has a thread for each shard, and glibc would give each an arena that keeps its own free
    memory. Two arenas took 400 MiB less for 40 shards that read a backlog (docs/decisions/spark.md).
    """
    found = {name: value for name, value in environ.items() if name != "KCL_SHARD_ID"}
    found.setdefault("MALLOC_ARENA_MAX", "2")
    return found


def _spawn(argv: list[str]) -> None:
    environ = environ_of_host(os.environ)
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, 2, 1),
    ]
    try:
        os.posix_spawn(argv[0], argv, environ, file_actions=actions, setsid=True)
    except NotImplementedError:  # the host leaves our session itself
        os.posix_spawn(argv[0], argv, environ, file_actions=actions)
