"""What MkDocs needs to know of the source tree, of which it sees docs/ only.

Pages that readers need but that stand elsewhere become part of the site. Links to other files
outside of docs/ lead to the source tree. A link to nothing stays as it is, and MkDocs reports it.
"""

from __future__ import annotations

import configparser
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
#: Pages of the source tree that are pages of the site, too.
INCLUDED = ("CHANGELOG.md", "CONTRIBUTING.md", "properties/KEYS.md", "protocol/README.md")
_COMMENT = re.compile(r"^ *<!--.*?-->\n", re.DOTALL | re.MULTILINE)
#: A link whose text is the name of a file, as it is readable in the source tree.
_NAMED = re.compile(r"\[[\w./-]+\.md\](?=\(([^)\s#]+))")
_LINK = re.compile(r"(?<=\]\()(?!\w+:)([^)\s#]+)")


def on_config(config: MkDocsConfig) -> None:
    """Anchors of headings are those that GitHub makes, so links hold in both places."""
    config.mdx_configs["toc"]["slugify"] = _slug


def _slug(heading: str, separator: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the included pages, and the style."""
    style = Path(__file__).parent / "tables.css"
    files.append(File.generated(config, style.name, abs_src_path=str(style)))
    for name in INCLUDED:
        files.append(File.generated(config, name, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: MkDocsConfig) -> str:
    """Point links at what they mean in the source tree, and call pages by their titles.

    Comments are dropped: they are for tests.
    """
    name = page.file.src_uri
    source = name if name in INCLUDED else f"docs/{name}"

    def target_of(link: re.Match[str]) -> str:
        return posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))

    def titled(link: re.Match[str]) -> str:
        target = ROOT / target_of(link)
        if not target.is_file():
            return link[0]
        return f"[{target.read_text('utf-8').partition(chr(10))[0].lstrip('# ')}]"

    def moved(link: re.Match[str]) -> str:
        target = target_of(link)
        of_site = target.removeprefix("docs/")
        if (target.startswith("docs/") or target in INCLUDED) and files.get_file_from_path(of_site):
            return posixpath.relpath(of_site, posixpath.dirname(name) or ".")
        if (ROOT / target).exists():
            return f"{source_url()}/{target}"
        return link[1]

    return _LINK.sub(moved, _NAMED.sub(titled, _COMMENT.sub("", markdown)))


def source_url() -> str:
    """Where the files of this version can be browsed, as setup.py has it."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg", "utf-8")
    module = (ROOT / "mld" / "__init__.py").read_text("utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', module, re.MULTILINE)
    return f"{settings['metadata']['url']}/blob/v{version}"
