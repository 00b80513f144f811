"""Images built without a Docker daemon, and containers without a runtime.

buildah builds them in a chroot, on a base that debootstrap makes. A container is what a runtime
would make of the image's configuration, from a root that nothing can write to and a PID namespace
of its own; the network is the machine's, so that a worker finds the embedded AWS on loopback.
"""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import tarfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tests.process.daemon import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

BASE = "debian:bookworm-slim"
UID = 10001
HOME = "/home/kcl-mld"
#: Where a build sees the certificates that pip needs on this machine.
_CA_IN_BUILD = "/etc/ssl/certs/build-ca.crt"
_TOOLS = ("buildah", "debootstrap", "setpriv", "unshare", "nsenter")
#: What may keep an installation from the network of this machine.
_PIP_KEYS = ("index-url", "extra-index-url", "trusted-host", "proxy")
_DEVICES = ("null", "zero", "full", "random", "urandom")
COMPILERS = {"as", "c++", "cc", "clang", "g++", "gcc", "go", "javac", "ld", "make", "rustc"}


@functools.cache
def missing() -> str | None:
    """Why no image can be built and tried here; None = it can."""
    if os.geteuid() != 0:
        return "only root may mount what a container sees"
    if absent := [name for name in _TOOLS if shutil.which(name) is None]:
        return f"not installed: {', '.join(absent)}"
    tried = subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"no namespaces: {tried.stderr.strip()}" if tried.returncode else None


def _run(command: Sequence[str], folder: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{shlex.join(command)}:\n{done.stdout[-8000:]}"
    return done.stdout


@dataclass(frozen=True)
class Image:
    """A mounted image.

    Attributes:
        root: its files; not to be changed.
        config: as Docker has it.
        size_bytes: as ``buildah images`` reports it.
    """

    name: str
    root: Path
    config: Mapping[str, Any]
    size_bytes: int


class ImageStore:
    """A place for images of its own, and a command ``docker`` that builds into it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store, state = shlex.quote(str(folder / "store")), shlex.quote(str(folder / "state"))
        self._buildah = f"buildah --storage-driver vfs --root {store} --runroot {state}"
        self.bin = folder / "bin"
        self.bin.mkdir()
        docker = self.bin / "docker"
        options = shlex.join(["--isolation", "chroot", "--format", "docker", *self._network()])
        docker.write_text(
            '#!/bin/sh\n[ "$1" = build ] || { echo "only build" >&2; exit 2; }\nshift\n'
            f'exec {self._buildah} build {options} "$@"\n'
        )
        docker.chmod(0o755)

    def _network(self) -> list[str]:
        """Options of a build that let pip reach its index as it does on this machine."""
        said = _run(["python3", "-m", "pip", "config", "list"])
        settings = {
            line.partition("=")[0].rpartition(".")[2]: line.partition("=")[2].strip("'\"")
            for line in said.splitlines()
        }
        lines = [f"{key} = {settings[key]}" for key in _PIP_KEYS if key in settings]
        options = []
        if certificates := settings.get("cert"):
            lines.append(f"cert = {_CA_IN_BUILD}")
            options += ["--volume", f"{certificates}:{_CA_IN_BUILD}:ro"]
        file = self.folder / "pip.conf"
        file.write_text("\n".join(["[global]", *lines, ""]))
        return [*options, "--secret", f"id=pip.conf,src={file}"]

    def buildah(self, *arguments: str) -> str:
        """What a command of buildah prints."""
        return _run([*shlex.split(self._buildah), *arguments])

    def type(self, commands: str, folder: Path) -> str:
        """Type commands of a page, which call ``docker build``; what they print."""
        path = f"{self.bin}:{os.environ['PATH']}"
        return _run(["bash", "-ec", commands], folder, PATH=path)

    def make_base(self) -> None:
        """Have what stands in for the base: Debian's essential packages.

        Raises:
            OSError: debootstrap fails, for example without a network.
        """
        tree, context = self.folder / "tree", self.folder / "context"
        command = ["debootstrap", "--variant=minbase", "bookworm", str(tree)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(f"debootstrap: {done.stdout[-500:]}{done.stderr[-500:]}")
        context.mkdir()
        leave_out = ("./var/cache/apt/", "./var/lib/apt/lists/")

        def kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
            return None if member.isfile() and member.name.startswith(leave_out) else member

        with tarfile.open(context / "base.tar", "w") as archive:
            archive.add(tree, ".", filter=kept)
        shutil.rmtree(tree)
        (context / "Containerfile").write_text("FROM scratch\nADD base.tar /\n")
        self.buildah("build", "--isolation", "chroot", "-t", BASE, str(context))
        shutil.rmtree(context)

    def image(self, name: str) -> Image:
        """Mount an image."""
        found = json.loads(self.buildah("inspect", "--type", "image", name))
        container = self.buildah("from", name).split()[-1]
        root = Path(self.buildah("mount", container).strip())
        listed = json.loads(self.buildah("images", "--json", name))
        return Image(name, root, found["Docker"]["config"], _bytes(listed[0]["size"]))

    def close(self) -> None:
        """Remove all of it."""
        self.buildah("rm", "--all")
        shutil.rmtree(self.folder, ignore_errors=True)


def _bytes(text: str) -> int:
    """A size such as ``251 MB``."""
    number, unit = text.split()
    return int(float(number) * {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}[unit])


def compilers_in(root: Path) -> list[str]:
    """Programs on the usual paths of a root, and in its ``/opt``, that translate or link code."""
    folders = [root / name for name in ("usr/bin", "usr/local/bin", "usr/sbin")]
    folders += [path for path in root.glob("opt/*/bin") if path.is_dir()]
    names = [entry.name for folder in folders if folder.is_dir() for entry in folder.iterdir()]
    return sorted(name for name in names if name in COMPILERS or name.startswith(("gcc-", "g++-")))


class Container:
    """A process tree in an image, under the user, in the folder and by the command that it names.

    Nothing of the root can be written to; ``/tmp`` and the home are empty and can.

    Args:
        command: instead of the image's; it is behind the entry point.
        entrypoint: instead of the image's.
        variables: beside those of the image.
        volumes: folder of this machine -> where it is seen, there to be written to.
        scratch: False = ``/tmp`` and the home cannot be written to, either.
    """

    def __init__(
        self,
        image: Image,
        *,
        command: Sequence[str] | None = None,
        entrypoint: Sequence[str] | None = None,
        variables: Mapping[str, str] | None = None,
        volumes: Mapping[Path, str] | None = None,
        scratch: bool = True,
    ) -> None:
        self._image = image
        config = image.config
        self._variables = {"HOME": HOME}
        self._variables |= dict(entry.split("=", 1) for entry in config["Env"])
        self._variables |= variables or {}
        words = [*(entrypoint if entrypoint is not None else config["Entrypoint"])]
        words += command if command is not None else config["Cmd"]
        script = "\n".join([*self._mounts(volumes or {}, scratch=scratch), self._entered(words)])
        self._lines: list[str] = []
        self._unshare = subprocess.Popen(
            ["unshare", "--mount", "--pid", "--uts", "--fork", "sh", "-ec", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _mounts(self, volumes: Mapping[Path, str], *, scratch: bool) -> list[str]:
        root = shlex.quote(str(self._image.root))
        lines = [
            f"mount --bind {root} {root}",
            f"mount -t proc proc {root}/proc",
            f"mount -t tmpfs -o mode=755 tmpfs {root}/dev",
            # Java looks its own host name up.
            "echo container > /proc/sys/kernel/hostname",
            f"echo 127.0.0.1 localhost container > {root}/dev/hosts; touch {root}/etc/hosts",
            f"mount --bind {root}/dev/hosts {root}/etc/hosts",
        ]
        lines += [
            f"touch {root}/dev/{name}; mount --bind /dev/{name} {root}/dev/{name}"
            for name in _DEVICES
        ]
        if scratch:
            lines.append(f"mount -t tmpfs -o mode=1777 tmpfs {root}/tmp")
            lines.append(f"mount -t tmpfs -o mode=700,uid={UID},gid={UID} tmpfs {root}{HOME}")
        for folder, seen in volumes.items():
            lines.append(f"mount --bind {shlex.quote(str(folder))} {root}{seen}")
        return [*lines, f"mount -o remount,bind,ro {root}"]

    def _entered(self, words: Sequence[str]) -> str:
        """A line for a shell that becomes a program of the image, as its user."""
        user, _, group = self._image.config["User"].partition(":")
        variables = [f"{name}={value}" for name, value in self._variables.items()]
        group = group or user  # as the image's /etc/passwd has it
        line = ["chroot", str(self._image.root), "setpriv", "--reuid", user, "--regid", group]
        line += ["--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        line += ["env", "-i", "-C", self._image.config["WorkingDir"], *variables, *words]
        return f"exec {shlex.join(line)}"

    def _read(self) -> None:
        assert self._unshare.stdout is not None
        for line in self._unshare.stdout:
            self._lines.append(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # A process that has become another user does not die with its parent.
        for pid in children_of(self._unshare.pid):
            os.kill(pid, signal.SIGKILL)
        self._unshare.kill()
        self._unshare.wait()
        self._reader.join(PATIENCE_S)
        assert self._unshare.stdout is not None
        self._unshare.stdout.close()

    @property
    def output(self) -> str:
        """What it has printed."""
        return "".join(self._lines)

    @property
    def init(self) -> int:
        """Its process 1, by the number that this machine has for it."""
        (pid,) = children_of(self._unshare.pid)
        return pid

    def wait_for(self, condition: Callable[[], Any], what: str) -> Any:
        """Until the condition is true; its value."""

        def looked() -> Any:
            value = condition()
            assert value or self._unshare.poll() is None, f"ended before: {what}\n{self.output}"
            return value

        try:
            return wait_until(looked, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None

    def wait_for_text(self, text: str) -> None:
        """Until it has printed that."""
        self.wait_for(lambda: text in self.output, text)

    def run(self, *words: str) -> tuple[int, str]:
        """Exit code and output of a further program in it."""
        line = ["nsenter", "--target", str(self.init), "--mount", "--pid"]
        done = subprocess.run(
            [*line, "sh", "-ec", self._entered(words)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        return done.returncode, done.stdout

    def signal(self, number: int) -> None:
        """Send a signal to process 1, as a runtime does."""
        os.kill(self.init, number)

    def stop(self) -> int:
        """Send the image's signal for a stop; the exit code."""
        self.signal(signal.Signals[self._image.config["StopSignal"]])
        return self.ends()

    def ends(self) -> int:
        """Its exit code, once it has ended."""
        code = self._unshare.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code


def children_of(pid: int) -> list[int]:
    """Child processes, those that have ended and were not waited for among them."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [int(word) for word in text.split()]


def state_of(pid: int) -> tuple[str, str]:
    """A process's name and state, ``Z`` for one that has ended; empty once it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()[0]
