"""What README shows is what the code says."""

import pathlib
import re

from mld.decide import lifecycle
from protocol import state

ROOT = pathlib.Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")


def section(name):
    """Text between the markers of a generated or checked section."""
    return README.partition(f"<!-- {name} -->")[2].partition(f"<!-- /{name} -->")[0].strip()


def diagram(text):
    """A Mermaid diagram as README holds it."""
    return f"```mermaid\n{text.strip()}\n```"


def test_the_diagram_of_a_shards_life_is_drawn_from_the_table_in_the_code():
    assert section("lifecycle") == diagram(lifecycle.mermaid())


def test_the_diagram_of_the_conversation_is_drawn_from_the_table_in_the_code():
    assert section("protocol") == diagram(state.mermaid(state.Role.DAEMON))


def test_every_difference_that_the_conformance_kit_names_is_a_row_of_the_table():
    rows = set(re.findall(r"^\| `([a-z0-9-]+)` \|", section("differences"), re.MULTILINE))
    named = set()
    for path in sorted((ROOT / "protocol" / "conform").glob("*.py")):
        text = path.read_text("utf-8")
        named |= set(re.findall(r'differs\(\s*[^,]+,\s*"([a-z0-9-]+)"', text))
        named |= set(re.findall(r'row="([a-z0-9-]+)"', text))
    assert named
    assert named <= rows


def test_every_difference_has_an_id_of_its_own():
    ids = re.findall(r"^\| `([a-z0-9-]+)` \|", section("differences"), re.MULTILINE)
    assert ids
    assert len(ids) == len(set(ids))
