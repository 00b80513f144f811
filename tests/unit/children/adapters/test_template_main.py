"""What a template imports, and what it notices while it does."""

import ast
import os
import sys

import pytest

from kcl_mld.children.adapters.template_main import (
    Environment,
    fresh_main,
    leading_imports,
)


def imported(source):
    return [ast.unparse(one) for one in leading_imports(ast.parse(source))]


def test_all_imports_at_the_top_level_are_taken_until_something_is_done():
    source = '''
"""Doc."""
from __future__ import annotations
import a, b.c as d
from e.f import *
from . import g
LIMIT = 5
log = logging.getLogger(__name__)
if TYPE_CHECKING:
    import h
try:
    import i
except ImportError:
    i = None
def one():
    import j
    call()
class Two:
    field = call()
    def three(self):
        call()
if LIMIT.get("x"):
    other: int = call()
assert LIMIT.get("y")
import k
'''
    taken = ["import a, b.c as d", "from e.f import *", "import k"]
    assert imported(source) == taken


@pytest.mark.parametrize(
    "line",
    [
        "sys.path.insert(0, 'lib')",
        "os.environ['OMP_NUM_THREADS'] = '1'",
        "sys.path += ['lib']",
        "sys.dont_write_bytecode = True",
        "del os.environ['X']",
        "monkey.patch_all()",
        "if sys.version_info > (3, 9):\n    patch()",
        "try:\n    pass\nexcept OSError:\n    patch()",
        "with open('x') as f:\n    pass",
        "for x in y:\n    pass",
        "while False:\n    pass",
        "_ = sys.path.insert(0, 'lib')",
        "_: None = sys.path.append('lib')",
        "level = os.environ.setdefault('LEVEL', 'INFO')",
        "assert load_dotenv()",
        "if os.environ.setdefault('LEVEL', 'INFO'):\n    pass",
        "class One:\n    sys.path.insert(0, 'lib')",
        "match LIMIT:\n    case 5:\n        patch()",
    ],
)
def test_imports_after_a_statement_that_may_change_them_are_the_childs(line):
    assert imported(f"import a\n{line}\nimport b\n") == ["import a"]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda: os.environ.get("KCL_SHARD_ID"), {"KCL_SHARD_ID"}),
        (lambda: os.getenv("KCL_SHARD_ID"), {"KCL_SHARD_ID"}),
        (lambda: "KCL_SHARD_ID" in os.environ, {"KCL_SHARD_ID"}),
        (lambda: os.environb.get(b"KCL_SHARD_ID"), {"KCL_SHARD_ID"}),
        (lambda: os.environ.copy(), {"*"}),  # noqa: PLW0108 - a method is of its class
        (lambda: dict(os.environ), {"*"}),
        (lambda: {**os.environ}, {"*"}),
        (lambda: [name for name in os.environ if name.startswith("KCL")], {"*"}),
        (lambda: os.environ["PATH"], set()),
        (lambda: os.environ.setdefault("PATH", ""), set()),
    ],
)
def test_an_environment_notes_who_asks_for_a_shard_or_copies_all(ask, expected):
    usual = type(os.environ)
    with Environment(["KCL_SHARD_ID"]) as environment:
        ask()
    assert environment.asked >= expected
    assert bool(environment.asked) == bool(expected)
    assert type(os.environ) is type(os.environb) is usual
    os.environ.copy()
    assert ("*" in environment.asked) == ("*" in expected)


def test_main_is_as_the_interpreter_makes_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    module = fresh_main("./app.py")
    assert sys.modules["__main__"] is module
    assert (module.__name__, module.__file__) == ("__main__", f"{tmp_path}/./app.py")
    assert module.__spec__ is module.__package__ is module.__cached__ is None
