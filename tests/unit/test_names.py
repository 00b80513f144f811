"""Two things of the package never have one name."""

import ast
import re
from collections import defaultdict

from tests.markdown_pages import ROOT

PACKAGE = ROOT / "mld"
#: The stand-in for amazon_kclpy: its names are those of that library.
FOREIGN = PACKAGE / "shim"


#: How classes and type aliases are written, private ones too.
TYPE = re.compile(r"_?[A-Z][a-z]+[A-Za-z]*")


def defined(node):
    """The names that a statement gives to classes or types."""
    match node:
        case ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [
                one.id for one in targets if isinstance(one, ast.Name) and TYPE.fullmatch(one.id)
            ]
        case ast.AnnAssign(target=ast.Name(id=name)) if TYPE.fullmatch(name):
            return [name]
    return []


def statements(path):
    """All of a module but the members of its classes, which may be called as the service does."""
    tree = ast.parse(path.read_text("utf-8"))
    members = {
        id(member)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for member in node.body
        if isinstance(member, ast.AnnAssign)
    }
    return (node for node in ast.walk(tree) if id(node) not in members)


def modules():
    """The modules that define a class or a type, by its name."""
    found = defaultdict(list)
    for path in sorted(PACKAGE.rglob("*.py")):
        if FOREIGN in path.parents:
            continue
        for node in statements(path):
            for name in defined(node):
                found[name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_types_have_one_name():
    found = modules()
    assert {"Scheduler", "PublisherFactory"} <= found.keys()
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
