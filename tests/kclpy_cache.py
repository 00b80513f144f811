"""Other people's client libraries, fetched once into ``.cache``: ``python -m tests.kclpy_cache``.

Nothing of them is in this repository. The sdist of ``amazon_kclpy`` cannot be installed without
Maven, so only its Python package and its samples are unpacked; npm's ``aws-kcl`` is installed as it is, without its
scripts.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[1] / ".cache"

KCLPY = "amazon_kclpy-3.2.0"
_KCLPY_SHA256 = "62e81cc84714c920fe6aa5d61837b298fe7e01f6326dcb564b12ab8e6c4aca4e"

AWS_KCL = "aws-kcl-2.3.2"


def kclpy() -> Path | None:
    """Folder to put on ``PYTHONPATH`` for the real ``amazon_kclpy``; None = it cannot be had.

    Its folder ``samples`` has the files that come with it.
    """
    return _cached(CACHE / f"{KCLPY}-with-samples", _fetch_kclpy)


def aws_kcl() -> Path | None:
    """Folder to put on ``NODE_PATH`` for npm's ``aws-kcl``; None = it or Node cannot be had."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        return None
    return _cached(CACHE / AWS_KCL, _fetch_aws_kcl)


def _cached(folder: Path, fetch) -> Path | None:
    """The folder, filled at the first call; parallel callers each fetch, one wins."""
    if folder.is_dir():
        return folder
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        try:
            filled = fetch(Path(scratch))
        except (OSError, subprocess.SubprocessError) as error:
            print(f"cannot fetch {folder.name}: {error}", file=sys.stderr)
            return None
        try:
            filled.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    return folder


def _fetch_kclpy(scratch: Path) -> Path:
    wanted = KCLPY.replace("-", "==")
    download = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--no-binary=:all:",
    ]
    failed: subprocess.SubprocessError | None = None
    for isolation in (["--no-build-isolation"], []):  # pip wants metadata, thus setuptools
        try:
            _run([*download, *isolation, "--dest", str(scratch), wanted])
            break
        except subprocess.SubprocessError as error:
            failed = error
    else:
        assert failed is not None
        raise failed
    sdist = scratch / f"{KCLPY}.tar.gz"
    if hashlib.sha256(sdist.read_bytes()).hexdigest() != _KCLPY_SHA256:
        raise OSError("its checksum is another one")
    _unpack(sdist, (f"{KCLPY}/amazon_kclpy/", f"{KCLPY}/samples/"), scratch)
    return scratch / KCLPY


def _unpack(sdist: Path, prefixes: tuple[str, ...], target: Path) -> None:
    """The plain files of a tar archive below some prefixes.

    Without ``extractall``: its ``filter``, without which 3.12 warns, came with 3.11.4.
    """
    with tarfile.open(sdist) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith(prefixes):
                file = target / member.name
                file.parent.mkdir(parents=True, exist_ok=True)
                content = archive.extractfile(member)
                assert content is not None
                file.write_bytes(content.read())
                file.chmod(member.mode | 0o600)


def _fetch_aws_kcl(scratch: Path) -> Path:
    install = ["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"]
    _run([*install, str(scratch), "aws-kcl@" + AWS_KCL.rpartition("-")[2]])
    return scratch / "node_modules"


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=120)


if __name__ == "__main__":
    for name, folder in (("amazon_kclpy", kclpy()), ("aws-kcl", aws_kcl())):
        print(f"{name}: {folder or 'not available'}")
