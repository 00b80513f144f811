"""The shape of the stand-in: what keeps it out of the way of the real package."""

from __future__ import annotations

import ast
import sys

import pytest

from kcl_mld.children.adapters.kclpy_path import SHIM

MODULES = sorted(SHIM.rglob("*.py"))


def test_only_the_inner_packages_are_regular_so_that_any_other_amazon_kclpy_wins() -> None:
    assert [str(p.relative_to(SHIM)) for p in MODULES if p.name == "__init__.py"] == [
        "amazon_kclpy/regular/amazon_kclpy/__init__.py",
        "amazon_kclpy/v2/__init__.py",
        "amazon_kclpy/v3/__init__.py",
    ]
    assert {p.name for p in SHIM.iterdir()} - {"__pycache__"} == {"amazon_kclpy"}


@pytest.mark.parametrize("module", MODULES, ids=lambda p: str(p.relative_to(SHIM)))
def test_it_is_written_for_python_3_8_and_imports_nothing_of_ours(module) -> None:
    tree = ast.parse(module.read_text(), feature_version=(3, 8))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
        )
    }
    if module.name == "batch_decoder.py":  # imported only where msgspec is
        imported -= {"msgspec"}
    assert imported <= sys.stdlib_module_names | {"amazon_kclpy"}
