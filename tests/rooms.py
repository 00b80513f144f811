"""The domains of the daemon, and how much of its imports stays within one of them.

``python -m tests.rooms`` prints the arrows between rooms, the share of imports within a room, and
the imports that run upward, of which ``tests/unit/test_layers.py`` allows none.
"""

import ast
import collections
import pathlib

SOURCE = pathlib.Path(__file__).resolve().parents[1] / "src"

#: From low to high: a room may import those before it.
ORDER = (
    "errors",
    "kernel",
    "signals",
    "config",
    "aws",
    "streams",
    "leases",
    "shards",
    "retrieval",
    "children",
    "fleet",
    "observe",
    "ops",
    "app",
)

#: What stays apart: commands, the acceptance run, Spark, and the models of AWS and of fleets.
APART = ("acceptance", "cli", "spark", "local", "simulate", "shim", "__main__")


def room_of(module):
    """The room of ``kcl_mld.…``; None for what stays apart.

    Raises:
        KeyError: no room of that name.
    """
    _, name, *_ = (*module.split("."), "")
    if not name or name in APART:
        return None
    if name not in ORDER:
        raise KeyError(module)
    return name


def imports_anything(path):
    """Whether a file has code that imports, and not a docstring alone."""
    return "import " in path.read_text("utf-8")


def modules():
    """Name -> file of each module of ``kcl_mld`` that has a room; packages only if they hold code."""
    found = {}
    for path in (SOURCE / "kcl_mld").rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if parts[-1] == "__init__" and not imports_anything(path):
            continue
        if room_of(name) is not None:
            found[name] = path
    return found


def imports(found):
    """Each (importer, imported) once, those for type checkers and in functions included."""
    edges = set()
    for name, path in found.items():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                edges |= {(name, alias.name) for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                edges.add((name, node.module))
                edges |= {(name, f"{node.module}.{alias.name}") for alias in node.names}
    return {(one, other) for one, other in edges if other in found and one != other}


def upward(edges):
    """The imports whose room is above the importer's, sorted."""
    return sorted(
        (one, other)
        for one, other in edges
        if ORDER.index(room_of(other)) > ORDER.index(room_of(one))
    )


def main():
    """Print the figures."""
    edges = imports(modules())
    pairs = collections.Counter((room_of(one), room_of(other)) for one, other in edges)
    inside = sum(count for (one, other), count in pairs.items() if one == other)
    arrows = sum(one != other for one, other in pairs)
    print(f"{arrows} arrows between {len(ORDER)} rooms")
    print(f"{inside / len(edges):.0%} of {len(edges)} imports stay inside a room")
    above = upward(edges)
    print(f"{len(above)} run upward:")
    for one, other in above:
        print(f"  {room_of(one)} -> {room_of(other)}: {one} -> {other}")


if __name__ == "__main__":
    main()
