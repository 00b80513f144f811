"""``python -m tests.readme``: write the generated sections of README anew."""

import pathlib

from mld.decide import lifecycle
from protocol import state

README = pathlib.Path(__file__).resolve().parents[1] / "README.md"


def with_section(text, name, body):
    """README's text with one section replaced."""
    before, opening, rest = text.partition(f"<!-- {name} -->")
    _, closing, after = rest.partition(f"<!-- /{name} -->")
    return f"{before}{opening}\n{body}\n{closing}{after}"


def diagram(text):
    """A Mermaid diagram as Markdown shows it."""
    return f"```mermaid\n{text.strip()}\n```"


def main():
    """Write the diagrams."""
    text = README.read_text("utf-8")
    text = with_section(text, "lifecycle", diagram(lifecycle.mermaid()))
    text = with_section(text, "protocol", diagram(state.mermaid(state.Role.DAEMON)))
    README.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
