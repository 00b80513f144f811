"""``make release``: builds what is published into ``dist/``, twice, and compares it.

The wheel and the source distribution are built from the commit, not from the folder, with the time
of the commit in place of that of the build. A bill of materials for each variant of the image and
``SHA256SUMS`` go with them. Nothing is uploaded.

Exit codes: 0 = ``dist/`` is complete; 1 = a check of what was built failed; 3 = refused, nothing
was built. ``make`` itself ends with 2 and prints the code.
"""

from __future__ import annotations

import argparse
import configparser
import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[1]
FAILED, REFUSED = 1, 3
VARIANTS = ("core", "spark")
LICENSES = ROOT / "packaging" / "licenses.txt"


class CheckFailed(Exception):
    """What was built is not what is to be published; the message says why."""


def run(*command: object, env: dict[str, str] | None = None) -> str:
    """Standard output of a command.

    Raises:
        CheckFailed: it failed; with all that it printed.
    """
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=env, cwd=ROOT)
    if done.returncode:
        raise CheckFailed(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return done.stdout


def version() -> str:
    """Of the checkout; the one place that has it."""
    text = (ROOT / "mld" / "__init__.py").read_text("utf-8")
    (found,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(found)


def refusals(wanted: str, *, is_published: bool) -> list[str]:
    """Why this checkout is not built.

    Args:
        wanted: its version.
        is_published: what is built is to be uploaded.
    """
    why = []
    if changed := run("git", "status", "--porcelain").splitlines():
        why.append(f"the tree is not the commit; git status names {len(changed)} paths")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    heading = re.search(rf"^## \[{re.escape(wanted)}\] - (\S+)$", changelog, re.MULTILINE)
    if heading is None:
        why.append(f"CHANGELOG.md has no heading: ## [{wanted}] - date")
    if not is_published:
        return why
    if heading is not None and not re.fullmatch(r"\d{4}-\d\d-\d\d", heading[1]):
        why.append(f"CHANGELOG.md: {wanted} has no date: {heading[1]}")
    if f"v{wanted}" not in run("git", "tag", "--points-at", "HEAD").split():
        why.append(f"the commit has no tag v{wanted}")
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", "utf-8")
    url = settings["metadata"]["url"]
    if str(urlsplit(url).hostname).endswith(".invalid"):
        why.append(f"setup.cfg: url is a placeholder: {url}")
    return why


def export(folder: Path) -> Path:
    """The files of the commit in a new folder."""
    archive = subprocess.run(
        ["git", "archive", "HEAD"], stdout=subprocess.PIPE, check=True, cwd=ROOT
    ).stdout
    return extract(archive, folder)


def extract(archive: bytes, folder: Path) -> Path:
    """The files of a tar in a new folder, with modes that depend on no umask.

    By ``tar``: the filters of ``tarfile`` came with Python 3.11.4.
    """
    folder.mkdir()
    command = ["tar", "--extract", "--no-same-owner", "--no-same-permissions"]
    subprocess.run(command, input=archive, check=True, cwd=folder, umask=0o022)
    return folder


def build(kind: str, tree: Path, out: Path, env: dict[str, str]) -> Path:
    """A distribution of a tree.

    Args:
        kind: ``sdist`` or ``wheel``.
        out: a new folder for it.
    """
    build_command = (sys.executable, "-m", "build", "--no-isolation", f"--{kind}")
    run(*build_command, "--outdir", out, tree, env=env)
    (built,) = out.iterdir()
    return built


def normalize(built: Path, epoch_s: int, out: Path) -> Path:
    """Copy a source distribution without what differs between builds.

    Names are sorted; all times are that of the commit, users and groups are 0, and modes are 0755
    for folders and programs, 0644 for the rest.
    """
    copy = out / built.name
    with (
        tarfile.open(built) as source,
        copy.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=epoch_s) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as target,
    ):
        for member in sorted(source.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            target.addfile(member, source.extractfile(member) if member.isfile() else None)
    return copy


def check_equal(what: str, one: Path, other: Path) -> None:
    """Compare two files.

    Raises:
        CheckFailed: they differ.
    """
    if one.read_bytes() != other.read_bytes():
        raise CheckFailed(f"{what} differ: {one.name}")


def distributions(folder: Path, out: Path, epoch_s: int) -> None:
    """Put the wheel and the source distribution into a folder.

    Raises:
        CheckFailed: two builds differ, or the wheels of the commit and of the source distribution.
    """
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
    trees = [export(folder / name) for name in ("tree", "other tree")]
    sdists = []
    for tree in trees:
        raw = build("sdist", tree, folder / f"{tree.name}, sdist", env)
        sdists.append(normalize(raw, epoch_s, raw.parent.parent / tree.name))
    check_equal("two source distributions of one commit", *sdists)
    place = extract(gzip.decompress(sdists[0].read_bytes()), folder / "unpacked")
    (unpacked,) = place.iterdir()
    shutil.copy(sdists[0], out)
    sdists[0].unlink()
    wheels = [
        build("wheel", tree, folder / f"{tree.name}, wheel", env) for tree in (trees[0], unpacked)
    ]
    check_equal("the wheels of the commit and of its source distribution", *wheels)
    shutil.copy(wheels[0], out)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted(out.iterdir()))


def bill_of_materials(
    variant: str, wanted: str, folder: Path, out: Path, env: dict[str, str]
) -> Path:
    """Install a variant of the image by its lock file, and describe that environment (CycloneDX)."""
    place = folder / f"environment-{variant}"
    uv = (sys.executable, "-m", "uv", "--quiet")
    run(*uv, "venv", "--python", sys.executable, place)
    install = (*uv, "pip", "install", "--python", place / "bin" / "python")
    lock = ROOT / "packaging" / "image" / f"requirements-{variant}.txt"
    run(*install, "--require-hashes", "--requirement", lock)
    run(*install, "--no-deps", "--no-index", "--find-links", out, f"kcl-mld=={wanted}")
    bill = out / f"kcl_mld-{wanted}-{variant}.cdx.json"
    described = (sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible")
    run(*described, "--output-file", bill, place / "bin" / "python", env=env)
    return bill


def licenses_in(bill: Path) -> dict[str, str]:
    """Name -> license of each package in a bill of materials, as its metadata declares it."""
    found = {}
    for one in json.loads(bill.read_text("utf-8"))["components"]:
        declared = [
            each.get("expression") or each["license"].get("id") or each["license"]["name"]
            for each in one.get("licenses", [])
        ]
        name = re.sub(r"[-_.]+", "-", one["name"]).lower()
        found[name] = " / ".join(sorted(declared)) or "not declared"
    return found


def check_licenses(found: dict[str, str], known: str) -> None:
    """Compare licenses with those that somebody has looked at.

    Args:
        found: name -> license.
        known: lines ``name: license``.

    Raises:
        CheckFailed: a package is new, or has another license now.
    """
    listed = dict(line.split(": ", 1) for line in known.splitlines() if line[:1] not in {"", "#"})
    new = [f"{name}: {text}" for name, text in sorted(found.items()) if listed.get(name) != text]
    if new:
        raise CheckFailed(
            "look at these licenses, then write them into packaging/licenses.txt:\n"
            + "\n".join(new)
        )


def release(wanted: str, variants: list[str]) -> None:
    """Fill ``dist/``, which is replaced once everything has passed.

    Raises:
        CheckFailed: a check failed; ``dist/`` is as it was.
    """
    epoch_s = int(run("git", "log", "-1", "--format=%ct"))
    env = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s)}
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as name:
        folder, out = Path(name), Path(name) / "dist"
        out.mkdir()
        distributions(folder, out, epoch_s)
        for variant in variants:
            bill = bill_of_materials(variant, wanted, folder, out, env)
            check_licenses(licenses_in(bill), LICENSES.read_text("utf-8"))
        sums = [
            f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n"
            for one in sorted(out.iterdir())
        ]
        (out / "SHA256SUMS").write_text("".join(sums), "utf-8")
        shutil.rmtree(ROOT / "dist", ignore_errors=True)
        shutil.copytree(out, ROOT / "dist")
    print("".join(sums), end="")


def main() -> int:
    """The exit code, see above."""
    parser = argparse.ArgumentParser(description="Build what is published into dist/.")
    parser.add_argument("--publish", action="store_true", help="it is to be uploaded afterwards")
    parser.add_argument(
        "--variant", action="append", choices=VARIANTS, help="bill of materials; default: all"
    )
    arguments = parser.parse_args()
    wanted = version()
    if why := refusals(wanted, is_published=arguments.publish):
        print("\n".join(f"refused: {one}" for one in why), file=sys.stderr)
        return REFUSED
    try:
        release(wanted, arguments.variant or list(VARIANTS))
    except CheckFailed as error:
        print(f"failed: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
