"""The Markdown pages of the project, taken apart for the tests that hold them to the code."""

import pathlib
import re
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: What is written for users; everything that the tests say of pages is said of these.
PAGES = ("README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md")))

_FENCE = re.compile(r"\s*(`{3,})\s*(\w*)")
_ITEM = re.compile(r"\s*(?:[*-]|\d+\.) ")
_INLINE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LINK = re.compile(r"!?\[([^\]]*)\]\(([^)\s]+)\)")
_HEADING = re.compile(r"#+ (.*)")


@dataclass(frozen=True)
class Fence:
    """A fenced block.

    Attributes:
        language: "" without.
        text: with a line break at its end.
        notes: texts of the comments right before it.
    """

    language: str
    text: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Page:
    """A page, split by kind.

    Attributes:
        name: path from the root of the project.
        text: all of it.
        fences: its fenced blocks.
        prose: (line number, line) that is neither code, table, heading nor comment; blank ones too.
        tables: lines of tables.
        headings: texts of its headings.
    """

    name: str
    text: str
    fences: tuple[Fence, ...]
    prose: tuple[tuple[int, str], ...]
    tables: tuple[str, ...]
    headings: tuple[str, ...]

    @property
    def anchors(self):
        """What ``#…`` may follow the page's name in a link, as GitHub makes it of headings."""
        found = []
        for heading in self.headings:
            plain = _LINK.sub(r"\1", heading).replace("`", "").strip().lower()
            slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
            repeated = sum(re.sub(r"-\d+$", "", one) == slug for one in found)
            found.append(f"{slug}-{repeated}" if repeated else slug)
        return set(found)

    @property
    def links(self):
        """Targets of all links outside of code."""
        lines = [line for _, line in self.prose] + list(self.tables)
        return [target for line in lines for _, target in _LINK.findall(line)]

    @property
    def inline_code(self):
        """Texts between backticks, outside of fenced blocks, line breaks as blanks."""
        prose = "\n".join(line for _, line in self.prose)
        texts = [text for _, text in _INLINE.findall(prose)]
        texts += [text for line in self.tables for _, text in _INLINE.findall(line)]
        return [" ".join(text.strip().strip("`").split()) for text in texts]

    @property
    def paragraphs(self):
        """Prose as (first line number, lines): a paragraph, or one item of a list."""
        found, last = [], -1
        for number, line in self.prose:
            if not line.strip():
                last = -1
            elif last == number - 1 and not _ITEM.match(line):
                found[-1][1].append(line)
                last = number
            else:
                found.append((number, [line]))
                last = number
        return found


def without_targets(line):
    """A line as its reader sees it: links without what they lead to."""
    return _LINK.sub(r"[\1]", line)


def page(name):
    """Take one page apart."""
    text = (ROOT / name).read_text("utf-8")
    fences, prose, tables, headings, block, opening = [], [], [], [], [], None
    notes, comment = [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = _FENCE.match(line)
        if opening is not None:
            if fence and line.strip() == opening.group(1):
                fences.append(Fence(opening.group(2), "\n".join(block) + "\n", tuple(notes)))
                opening, notes = None, []
            else:
                block.append(line)
        elif comment is not None or line.lstrip().startswith("<!--"):
            comment = [*(comment or ()), line]
            if line.rstrip().endswith("-->"):
                notes.append("\n".join(comment).strip()[4:-3].strip())
                comment = None
        elif fence:
            opening, block = fence, []
        elif line.startswith("|"):
            tables.append(line)
        elif heading := _HEADING.match(line):
            headings.append(heading.group(1))
        else:
            prose.append((number, line))
        if (
            opening is None
            and comment is None
            and line.strip()
            and not line.rstrip().endswith("-->")
        ):
            notes = []  # they are about what follows at once
    assert opening is None, f"{name}: a fenced block has no end"
    assert comment is None, f"{name}: a comment has no end"
    return Page(name, text, tuple(fences), tuple(prose), tuple(tables), tuple(headings))
