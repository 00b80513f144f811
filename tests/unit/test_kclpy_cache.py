"""Unpacking of what others published, with what Python 3.11.0 has."""

import io
import tarfile

from tests.kclpy_cache import _unpack


def test_the_files_of_one_package_are_unpacked_and_nothing_else(tmp_path):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as archive:
        for name in ("x-1/pkg/__init__.py", "x-1/pkg/sub/a.py", "x-1/setup.py", "x-1/pkgs/b.py"):
            member = tarfile.TarInfo(name)
            member.size = len(name)
            archive.addfile(member, io.BytesIO(name.encode()))
        link = tarfile.TarInfo("x-1/pkg/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)
    _unpack(tmp_path / "x.tar.gz", ("x-1/pkg/",), tmp_path / "out")
    found = {path.relative_to(tmp_path / "out"): path for path in (tmp_path / "out").rglob("*.*")}
    assert sorted(map(str, found)) == ["x-1/pkg/__init__.py", "x-1/pkg/sub/a.py"]
    assert all(path.read_text() == str(name) for name, path in found.items())
