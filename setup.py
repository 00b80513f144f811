"""What setup.cfg cannot say: the links of README.md as they are outside of the source tree."""

import configparser
import pathlib
import re

from setuptools import setup

ROOT = pathlib.Path(__file__).parent
_SETTINGS = configparser.ConfigParser()
_SETTINGS.read(ROOT / "setup.cfg", "utf-8")
(_VERSION,) = re.findall(
    r'^__version__ = "(.+)"$', (ROOT / "src/kcl_mld/__init__.py").read_text("utf-8"), re.MULTILINE
)
#: Of the repository.
URL = _SETTINGS["metadata"]["url"]
FILES = f"{URL}/blob/v{_VERSION}"
#: The target of a link that is a path, perhaps with an anchor, or an anchor alone.
_RELATIVE = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(#[^)\s]*)?\)")


def with_absolute_links(text: str) -> str:
    """The text of README.md with each path in a link replaced by an address."""
    return _RELATIVE.sub(lambda link: f"]({FILES}/{link[1] or 'README.md'}{link[2] or ''})", text)


setup(
    long_description=with_absolute_links((ROOT / "README.md").read_text("utf-8")),
    project_urls={
        "Documentation": f"{FILES}/docs/README.md",
        "Changelog": f"{FILES}/CHANGELOG.md",
        "Source": URL,
        "Issues": f"{URL}/issues",
        "Security": f"{FILES}/SECURITY.md",
    },
)
