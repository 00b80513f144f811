"""Move the modules of one room of ``tests/rooms.py``, and rewrite what names them.

``python tests/move_room.py ROOM`` from the root of the checkout. ``git mv`` and names only: imports,
dotted names and paths in every text file of the project.
"""

import ast
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tests import rooms

ROOT = pathlib.Path(__file__).resolve().parents[1]
#: Layer of today -> folder in a room.
FOLDERS = {
    "model": ["model"],
    "decide": ["rules"],
    "ports": [],
    "services": [],
    "adapters": ["adapters"],
    "app": [],
}
#: Folders of today that the room's own name replaces.
DOMAINS = {
    "leases",
    "shards",
    "streams",
    "fleet",
    "retrieval",
    "config",
    "aws",
    "child",
    "children",
}
#: Rooms that hold pure modules only.
FLAT = {"errors", "config"}
TEXTS = (
    "*.py",
    "*.md",
    "*.cfg",
    "*.toml",
    "Makefile",
    "*.properties",
    "*.json",
    "*.txt",
    "*.yml",
    ".ci/run",
)


def new_name(module):
    """Where a module goes."""
    room = rooms.room_of(module)
    if module == "mld.errors":
        return module
    layer, *rest = module.split(".")[1:]
    if layer in rooms.ORDER:
        return module
    if layer == "ports":
        return f"mld.{room}.ports"
    if rest[0] in DOMAINS and len(rest) > 1:
        rest = rest[1:]
    folder = [] if room in FLAT or (layer, room) == ("adapters", "aws") else FOLDERS[layer]
    return ".".join(["mld", room, *folder, *rest])


def mapping():
    """All modules, old -> new, packages that hold code included."""
    return {name: new_name(name) for name in rooms.modules()}


def git(*words):
    subprocess.run(["git", *words], cwd=ROOT, check=True)


def path_of(module):
    base = ROOT.joinpath(*module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def split_imports(text, moved, packages):
    """``from package import module`` of a moved module becomes an import of its own."""
    lines = text.splitlines(keepends=True)
    for node in reversed(
        [one for one in ast.walk(ast.parse(text)) if isinstance(one, ast.ImportFrom)]
    ):
        if node.level or node.module not in packages:
            continue
        gone = [a for a in node.names if f"{node.module}.{a.name}" in moved]
        if not gone:
            continue
        indent = re.match(r"\s*", lines[node.lineno - 1])[0]
        kept = [a for a in node.names if a not in gone]

        def said(alias, name):
            return name + (
                f" as {alias.asname or alias.name}" if (alias.asname or alias.name) != name else ""
            )

        new = []
        if kept:
            new.append(f"from {node.module} import {', '.join(said(a, a.name) for a in kept)}")
        for a in gone:
            package, _, name = moved[f"{node.module}.{a.name}"].rpartition(".")
            new.append(f"from {package} import {said(a, name)}")
        tail = lines[node.end_lineno - 1][node.end_col_offset :]
        lines[node.lineno - 1 : node.end_lineno] = [
            "".join(f"{indent}{one}\n" for one in new[:-1]) + indent + new[-1] + tail
        ]
    return "".join(lines)


def rewrite(moved):
    packages = {name.rpartition(".")[0] for name in moved if not name.startswith("tests.")}
    names = sorted(moved, key=len, reverse=True)
    dotted = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, names)) + r")(?![\w])")
    slashed = {name.replace(".", "/"): new.replace(".", "/") for name, new in moved.items()}
    paths = re.compile(
        r"(?<![\w])("
        + "|".join(map(re.escape, sorted(slashed, key=len, reverse=True)))
        + r")(?=\.py\b|/|`|$)",
        re.M,
    )
    listed = subprocess.run(
        ["git", "ls-files", "--", *TEXTS], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\n")
    for one in filter(None, listed):
        path = ROOT / one
        if path.is_symlink() or not path.exists() or one == "tests/rooms.py":
            continue
        text = before = path.read_text("utf-8")
        if path.suffix == ".py" and any(package in text for package in packages):
            text = split_imports(text, moved, packages)
        text = dotted.sub(lambda m: moved[m[1]], text)
        text = paths.sub(lambda m: slashed[m[1]], text)
        if text != before:
            path.write_text(text, "utf-8")


def packages_of(names):
    """Missing ``__init__.py`` of the new folders."""
    for name in names:
        parts = name.split(".")[:-1]
        for length in range(2, len(parts) + 1):
            folder = ROOT.joinpath(*parts[:length])
            folder.mkdir(parents=True, exist_ok=True)
            init = folder / "__init__.py"
            if not init.exists():
                words = parts[1:length]
                what = {"model": "Values", "rules": "Decisions", "adapters": "Adapters"}.get(
                    words[-1]
                )
                init.write_text(
                    f'"""{what} of {words[0]}."""\n'
                    if what
                    else f'"""{words[-1].capitalize()}."""\n'
                )
                git("add", str(init))


def main(room):
    moved = {
        old: new for old, new in mapping().items() if rooms.room_of(old) == room and old != new
    }
    targets = list(moved.values())
    assert len(set(targets)) == len(targets), sorted(
        one for one in targets if targets.count(one) > 1
    )
    packages_of(targets)
    for old, new in moved.items():
        source = path_of(old)
        target = ROOT.joinpath(*new.split("."))
        target = (
            target / "__init__.py" if source.name == "__init__.py" else target.with_suffix(".py")
        )
        git("mv", "-f", str(source), str(target))
        for beside in source.parent.glob("*.[chj][st]*") if source.parent.name == "console" else ():
            git("mv", str(beside), str(target.parent / beside.name))
    tests = {}
    for old, new in moved.items():
        test = ROOT.joinpath(
            "tests", "unit", *old.split(".")[1:-1], f"test_{old.rpartition('.')[2]}.py"
        )
        if test.exists():
            tests |= move_test(test, new.split(".")[1:-1])
    rewrite(moved | tests)


#: Tests that are of no module alone: folder of today -> the one they go to.
TESTS = {
    "model/config": "config",
    "model/spark": "config/spark",
    "model/fleet": "fleet/model",
    "model/leases": "leases/model",
    "decide/children": "children/rules",
    "decide/retrieval": "retrieval/rules",
    "decide/leases": "leases/rules",
    "decide/fleet": "fleet/rules",
    "decide/fleet/assignment": "fleet/rules/assignment",
    "decide/shards": "shards/rules",
    "decide/streams": "streams/rules",
    "decide": "ops/rules",
    "services/consuming": "children/consuming",
    "services": "children",
    "services/retrieval": "retrieval",
    "services/leases": "leases",
    "services/fleet": "fleet",
    "services/streams": "streams",
    "adapters/aws": "aws",
    "adapters": "kernel/adapters",
}


def move_test(test, folders):
    """A test, and what it counts from its own place."""
    target = ROOT.joinpath("tests", "unit", *folders, test.name)
    target.parent.mkdir(parents=True, exist_ok=True)
    assert not target.exists(), target
    git("mv", str(test), str(target))
    deeper = len(target.parts) - len(test.parts)
    text = target.read_text("utf-8")
    new = re.sub(
        r"(__file__\)(?:\.resolve\(\))?\.parents\[)(\d)",
        lambda m: f"{m[1]}{int(m[2]) + deeper}",
        text,
    )
    target.write_text(new, "utf-8")
    one, two = (path.relative_to(ROOT).with_suffix("").parts for path in (test, target))
    return {".".join(one): ".".join(two)}


def main_tests():
    """What is left of the tests."""
    tests = {}
    for old, new in TESTS.items():
        for test in sorted(ROOT.joinpath("tests/unit", old).glob("*.py")):
            tests |= move_test(test, new.split("/"))
    rewrite(tests)


if __name__ == "__main__":
    main_tests() if sys.argv[1:] == ["tests"] else main(*sys.argv[1:])
