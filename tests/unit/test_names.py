"""Two things of the package never have one name."""

import ast
from collections import defaultdict

from tests.markdown_pages import ROOT

PACKAGE = ROOT / "mld"
#: The stand-in for amazon_kclpy: its names are those of that library.
FOREIGN = PACKAGE / "shim"


def classes():
    """The modules that define a class, by its name."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if FOREIGN in path.parents:
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_classes_have_one_name():
    found = classes()
    assert "Scheduler" in found
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
