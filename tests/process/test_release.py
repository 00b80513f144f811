"""``make release``: what it refuses, what it builds, and which faults it finds."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from urllib.parse import urljoin

import pytest

from tests.checkout import ROOT, copy_checkout, run

pytestmark = pytest.mark.process

GIT = (
    "git",
    "-c",
    "user.name=A",
    "-c",
    "user.email=a@example.invalid",
    "-c",
    "commit.gpgsign=false",
)
PLACEHOLDER = "https://example.invalid/kcl-mld"
_SPEC = importlib.util.spec_from_file_location("release", ROOT / "packaging" / "release.py")
release = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(release)


@pytest.fixture
def commit(tmp_path):
    """A commit of the checkout's files, in a repository of its own."""
    folder = copy_checkout(tmp_path / "checkout")
    run("git", "init", "--quiet", folder, folder=tmp_path)
    committed(folder)
    return folder


def committed(folder):
    run(*GIT, "add", "--all", folder=folder)
    run(*GIT, "commit", "--quiet", "--message", "a", folder=folder)


def released(folder, *options):
    """Exit code, and what it printed."""
    command = [sys.executable, "packaging/release.py", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_a_changed_tree_a_version_without_changes_and_a_placeholder_are_refused(commit):
    (commit / "new.txt").write_text("x")
    changelog = commit / "CHANGELOG.md"
    changelog.write_text(changelog.read_text().replace(f"## [{release.version()}]", "## [0.0.1]"))
    code, printed = released(commit)
    assert code == 3
    assert "refused: the tree is not the commit; git status names 2 paths\n" in printed
    assert f"refused: CHANGELOG.md has no heading: ## [{release.version()}] - date\n" in printed
    assert PLACEHOLDER not in printed
    committed(commit)
    code, printed = released(commit, "--publish")
    assert code == 3
    assert f"refused: setup.cfg: url is a placeholder: {PLACEHOLDER}\n" in printed
    assert f"refused: the commit has no tag v{release.version()}\n" in printed
    assert "git status" not in printed
    assert not (commit / "dist").exists()


def test_what_is_to_be_published_has_a_date_a_tag_and_an_address(commit):
    version = release.version()
    changelog = commit / "CHANGELOG.md"
    dated = re.sub(rf"(## \[{version}\] - )\S+", r"\g<1>2026-12-01", changelog.read_text())
    changelog.write_text(dated)
    settings = commit / "setup.cfg"
    settings.write_text(settings.read_text().replace(PLACEHOLDER, "https://example.org/kcl-mld"))
    (commit / "packaging" / "licenses.txt").write_text("")
    committed(commit)
    run("git", "tag", f"v{version}", folder=commit)
    asked = f"import release; print(release.refusals({version!r}, is_published=True))"
    said = run(sys.executable, "-c", asked, folder=commit / "packaging")
    assert said == "[]\n"


@pytest.mark.proof
def test_a_release_has_everything_with_its_hashes(commit):
    code, printed = released(commit, "--variant", "core")
    assert code == 0, printed
    dist, version = commit / "dist", release.version()
    wheel, sdist = f"kcl_mld-{version}-py3-none-any.whl", f"kcl_mld-{version}.tar.gz"
    bill = f"kcl_mld-{version}-core.cdx.json"
    assert {one.name for one in dist.iterdir()} == {wheel, sdist, bill, "SHA256SUMS"}
    for line in (dist / "SHA256SUMS").read_text().splitlines():
        wanted, _, name = line.partition("  ")
        assert hashlib.sha256((dist / name).read_bytes()).hexdigest() == wanted
    with tarfile.open(dist / sdist) as files:
        inside = files.getnames()
    with zipfile.ZipFile(dist / wheel) as files:
        inside += files.namelist()
    assert [name for name in inside if re.search(r"(^|/)(tests|benchmarks)/", name)] == []
    text = (dist / bill).read_text()
    assert "file:" not in text
    assert str(commit) not in text
    named = {one["name"]: one["version"] for one in json.loads(text)["components"]}
    assert named["kcl-mld"] == version
    assert {"boto3", "click", "msgspec"} < named.keys()


@pytest.mark.proof
def test_a_release_that_cannot_be_built_twice_fails_and_leaves_dist(commit):
    (commit / "dist").mkdir()
    setup = commit / "setup.py"
    setup.write_text(
        setup.read_text().replace(
            "setup(\n", "import uuid\nsetup(\n    platforms=[str(uuid.uuid4())],\n"
        )
    )
    committed(commit)
    code, printed = released(commit, "--variant", "core")
    assert code == 1
    assert "failed: two source distributions of one commit differ: kcl_mld-" in printed
    assert list((commit / "dist").iterdir()) == []


def tarball(path, *, mtime, mode, names):
    with gzip.GzipFile(path, "wb", mtime=mtime) as packed, tarfile.open(None, "w", packed) as files:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = 1, mtime, mode
            member.uid, member.uname = mtime, f"user-{mtime}"
            files.addfile(member, io.BytesIO(b"x"))


def test_source_distributions_differ_by_their_content_only(tmp_path):
    made = []
    for number, mode in enumerate((0o664, 0o644), 1):
        names = ["a-1.0/b", "a-1.0/c"][:: 1 if number == 1 else -1]
        raw, out = tmp_path / f"raw-{number}" / "a-1.0.tar.gz", tmp_path / f"out-{number}"
        raw.parent.mkdir()
        out.mkdir()
        tarball(raw, mtime=number, mode=mode, names=names)
        made.append(release.normalize(raw, 1_700_000_000, out))
    release.check_equal("both", *made)
    with tarfile.open(made[0]) as files:
        (one, _) = files.getmembers()
    assert (one.name, one.mtime, one.uid, one.uname, one.mode) == (
        *("a-1.0/b", 1_700_000_000),
        *(0, "", 0o644),
    )
    made[1].write_bytes(made[1].read_bytes() + b"x")
    with pytest.raises(release.CheckFailed, match=r"both differ: a-1\.0\.tar\.gz"):
        release.check_equal("both", *made)


def test_a_new_package_and_another_license_stop_a_release():
    known = "# words\na: MIT\nb: MIT\n"
    release.check_licenses({"a": "MIT"}, known)
    with pytest.raises(release.CheckFailed, match=r"\nb: GPL-3\.0-only\nc: MIT$"):
        release.check_licenses({"a": "MIT", "b": "GPL-3.0-only", "c": "MIT"}, known)


def test_every_package_that_is_locked_has_a_license_in_the_list_and_no_other_has():
    lines = release.LICENSES.read_text().splitlines()
    listed = {line.partition(":")[0] for line in lines if not line.startswith("#")}
    lock = (ROOT / "packaging" / "image" / "requirements-spark.txt").read_text()
    assert listed == {*re.findall(r"^([a-z0-9-]+)==", lock, re.MULTILINE), "kcl-mld"}


def test_links_of_the_readme_are_addresses_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
        text = archive.read(name).decode()
    readme = f"{PLACEHOLDER}/blob/v{release.version()}/README.md"
    described, source = text.partition("\n\n")[2], (ROOT / "README.md").read_text()
    link, fence = (
        re.compile(r"\]\(([^)\s]+)\)"),
        re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL),
    )
    wanted = [urljoin(readme, one) for one in link.findall(source)]
    assert link.findall(described) == wanted
    assert f"{readme}#performance" in wanted
    assert fence.findall(described) == fence.findall(source)
