"""``make site``: the website has what the pages say, and reports links that lead nowhere."""

from __future__ import annotations

import contextlib
import functools
import http.server
import re
import subprocess
import sys
import threading
from collections import Counter

import pytest
from markdown_it import MarkdownIt

from tests import chromium
from tests.checkout import ROOT, copy_checkout, tracked
from tests.markdown_pages import PAGES

pytestmark = pytest.mark.process

#: Parts of a page that the two readers of Markdown must find in the same number.
_PARTS = re.compile(r"<(h[1-6]|ul|ol|li|tr|pre|blockquote|img|strong|em|code)\b")
#: Pages outside of docs/ that are part of the website.
INCLUDED = ("CHANGELOG.md", "CONTRIBUTING.md", "properties/KEYS.md", "protocol/README.md")


def build(folder, site):
    """Exit code and messages of what ``make site`` runs."""
    (recipe,) = re.findall(r"^site:.*\n\t\$\(BIN\)/mkdocs (.+)$", makefile(), re.MULTILINE)
    command = [sys.executable, "-m", "mkdocs", *recipe.split(), "--site-dir", str(site)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    return done.returncode, done.stdout + done.stderr


def makefile():
    return (ROOT / "Makefile").read_text("utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    code, said = build(ROOT, folder)
    assert code == 0, said
    return folder


def file_of(site, source):
    """The page of a source."""
    return site / source.removeprefix("docs/").replace("README", "index").replace(".md", ".html")


def article(site, source):
    """What a page shows, without what is around it."""
    text = file_of(site, source).read_text("utf-8")
    return re.search(r"<article[^>]*>(.*?)</article>", text, re.DOTALL)[1]


SOURCES = [*(name for name in PAGES if name.startswith("docs/")), *INCLUDED]


def test_every_page_has_the_lists_tables_and_code_of_its_source(site):
    """Python's Markdown is stricter than GitHub's about blanks before lists and within them."""
    github = MarkdownIt("commonmark").enable("table")
    for source in SOURCES:
        wanted = Counter(_PARTS.findall(github.render((ROOT / source).read_text("utf-8"))))
        found = Counter(_PARTS.findall(article(site, source)))
        assert found == wanted, source


def test_nothing_is_loaded_from_another_host(site):
    for file in site.rglob("*.html"):
        text = file.read_text("utf-8")
        loaded = re.findall(r"<(?:script|img|iframe|source)\b[^>]*\bsrc(?:set)?=\"([^\"]+)", text)
        loaded += re.findall(r"<link\b[^>]*\bhref=\"([^\"]+)", text)
        assert loaded
        assert not [one for one in loaded if re.match(r"(?:\w+:)?//", one)], file
    for file in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import )[\"']?(?:https?:)?//", file.read_text("utf-8"))


def test_comments_for_tests_are_not_shown(site):
    assert not [file for file in site.rglob("*.html") if "<!-- test:" in file.read_text("utf-8")]


def test_links_to_other_files_lead_to_this_version_of_the_source_tree(site):
    links = re.findall(r'href="(https://[^"]+/blob/v[^"]+)"', article(site, "docs/architecture.md"))
    named = {link.partition("/blob/v")[2].partition("/")[2].partition("#")[0] for link in links}
    assert "mld/leases/lease_store.py" in named
    assert named <= set(tracked())
    assert 'href="protocol/index.html"' in article(site, "docs/architecture.md")
    assert 'href="../dead-letters.html"' in article(site, "protocol/README.md")


def test_what_leads_nowhere_is_an_error(tmp_path):
    folder = copy_checkout(tmp_path / "copy")
    (folder / "docs" / "logs.md").write_text(
        "# Logs\n\n[page](nowhere.md), [anchor](probes.md#nowhere), [own](#nowhere), "
        "[file](../mld/nowhere.py)\n"
    )
    (folder / "docs" / "forgotten.md").write_text("# Forgotten\n")
    code, said = build(folder, tmp_path / "site")
    assert code == 1
    for planted in ("'nowhere.md'", "'probes.md#nowhere'", "'#nowhere'", "'../mld/nowhere.py'"):
        assert planted in said
    assert 'not included in the "nav" configuration:\n  - forgotten.md' in said


@contextlib.contextmanager
def served(folder):
    """The address of a server of files."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    handler.log_message = lambda *_: None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.proof
@pytest.mark.skipif(
    chromium.program() is None,
    reason="the website is not looked at: there is no Chromium (apt-get install chromium)",
)
def test_a_phone_in_the_dark_shows_wide_tables_and_code_without_moving_the_page(site):
    with served(site) as address, chromium.opened(f"{address}/index.html") as tab:
        tab.show(390, 844, dark=True)
        for name in ("index", "migrating", "architecture", "benchmarks", "spark/reference"):
            tab.call("Page.navigate", url=f"{address}/{name}.html")
            tab.until(f"location.pathname == '/{name}.html' && document.readyState == 'complete'")
            assert tab.evaluate("document.documentElement.scrollWidth") == 390, name
            assert tab.evaluate("document.body.dataset.mdColorScheme") == "slate", name
        # a foreign host or a missing file would be an entry
        assert tab.logged == []
