"""The layers hold, and the check that says so refuses what it must refuse."""

import ast
import graphlib
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from tests import rooms

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"


@pytest.fixture
def copy(tmp_path):
    """The packages and the contracts, to be spoilt."""
    for package in ("kcl_mld", "kcl_mld_protocol"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(SOURCE / package, tmp_path / package, ignore=ignored)
    shutil.copy(ROOT / "setup.cfg", tmp_path)
    return tmp_path


def check(folder):
    """Exit code and report of import-linter on the packages in a folder."""
    # -P and PYTHONPATH: the copy is looked at, wherever the checkout is installed.
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "--no-cache"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def plant(folder, module, line):
    """Add an import to a module of the copy."""
    path = folder.joinpath(*module.split(".")).with_suffix(".py")
    before, future, after = path.read_text("utf-8").partition("annotations\n")
    assert future
    path.write_text(f"{before}{future}{line}\n{after}", "utf-8")


def test_the_layers_hold(copy):
    code, report = check(copy)
    assert code == 0, report
    assert "0 broken" in report


#: Module, import that is planted in it, who must not import what.
VIOLATIONS = [
    ("kcl_mld.leases.rules.taking", "asyncio", "kcl_mld.leases.rules", "asyncio"),
    (
        "kcl_mld.leases.rules.renewal",
        "kcl_mld.kernel.concurrency",
        "kcl_mld.leases.rules",
        "asyncio",
    ),
    ("kcl_mld.leases.lease_scan", "kcl_mld.fleet.fleet_state", "kcl_mld.leases", "kcl_mld.fleet"),
    (
        "kcl_mld.fleet.leader_lock",
        "kcl_mld.observe.fleet_reader",
        "kcl_mld.fleet",
        "kcl_mld.observe",
    ),
    (
        "kcl_mld.leases.model.lease",
        "kcl_mld.leases.rules.taking",
        "kcl_mld.leases.model",
        "kcl_mld.leases.rules",
    ),
    ("kcl_mld.aws.clients", "kcl_mld.app", "kcl_mld.aws", "kcl_mld.app"),
    ("kcl_mld.config.spark.settings", "kcl_mld.spark.config", "kcl_mld.config", "kcl_mld.spark"),
    ("kcl_mld.errors", "kcl_mld.leases.model.lease", "kcl_mld.errors", "kcl_mld.leases"),
    ("kcl_mld.simulate.fleet", "kcl_mld.kernel.ports", "kcl_mld.simulate", "kcl_mld.kernel.ports"),
    ("kcl_mld.simulate.fleet", "time", "kcl_mld.simulate", "time"),
    ("kcl_mld.app.wiring", "kcl_mld.spark.host", "kcl_mld.app", "kcl_mld.spark"),
    ("kcl_mld.app.scheduler", "kcl_mld.acceptance.run", "kcl_mld.app", "kcl_mld.acceptance"),
    ("kcl_mld.acceptance.rules.plan", "time", "kcl_mld.acceptance.rules", "time"),
    ("kcl_mld.cli.validate", "kcl_mld.spark.config", "kcl_mld.cli", "kcl_mld.spark"),
    ("kcl_mld.spark.config", "kcl_mld.leases.lease_store", "kcl_mld.spark", "kcl_mld.leases"),
    ("kcl_mld_protocol.codec", "socket", "kcl_mld_protocol.codec", "socket"),
    ("kcl_mld_protocol.child", "kcl_mld.errors", "kcl_mld_protocol", "kcl_mld"),
]


def test_planted_violations_are_refused(copy):
    """All at once, as a look at all modules takes seconds; each is in the report with its line."""
    for module, imported, _importer, _forbidden in VIOLATIONS:
        plant(copy, module, f"import {imported}")
    code, report = check(copy)
    assert code != 0
    chains = report.partition("Broken contracts")[2]
    for module, imported, importer, forbidden in VIOLATIONS:
        complaint = f"{importer} is not allowed to import {forbidden}:"
        (_, *found) = chains.split(complaint)
        told = [each.partition("is not allowed to import")[0] for each in found]
        planted = re.compile(
            rf"^- +{re.escape(module)} -> {re.escape(imported)} \(l\.\d+\)", re.MULTILINE
        )
        assert any(planted.search(each) for each in told), f"{complaint} is not in {report}"


# --- what import-linter does not see: imports for type checkers


def imports_of_all():
    """Module -> the modules that it imports, those for type checkers and in functions, too."""
    files = {}
    for package in ("kcl_mld", "kcl_mld_protocol"):
        for path in (SOURCE / package).rglob("*.py"):
            parts = path.relative_to(SOURCE).with_suffix("").parts
            if "shim" not in parts:
                files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return {name: imports_in(path, files.keys()) - {name} for name, path in files.items()}


def imports_in(path, modules):
    """Names of ``modules`` that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= inner if inner <= modules else {*inner, node.module}
    return found & modules


@pytest.fixture(scope="module")
def imported():
    return imports_of_all()


def test_no_imports_run_in_a_circle(imported):
    order = list(graphlib.TopologicalSorter(imported).static_order())
    assert order.index("kcl_mld.leases.lease_store") < order.index("kcl_mld.fleet.lease_wiring")


#: Within a room: what a part may import of any room's parts.
BELOW = {
    "model": {"model", "pure"},
    "rules": {"model", "rules", "pure"},
    "services": {"model", "rules", "pure", "services"},
}


def part_of(module):
    """``model``, ``rules``, ``adapters``, ``services`` of a room; ``pure`` = of a room of values."""
    _, room, *rest = module.split(".")
    if room in {"errors", "config"}:
        return "pure"
    if room == "aws":
        return "services" if rest == ["ports"] else "adapters"
    return rest[0] if rest and rest[0] in {"model", "rules", "adapters"} else "services"


def wrong_parts(edges):
    """Imports of a part that lies above: decisions know no effect, services no adapter."""
    return [
        f"{one} -> {other}"
        for one, other in sorted(edges)
        if rooms.room_of(one) != "app"
        and (allowed := BELOW.get(part_of(one))) is not None
        and part_of(other) not in allowed
    ]


def test_values_know_no_decision_decisions_no_effect_and_services_no_adapter():
    assert not wrong_parts(rooms.imports(rooms.modules()))


@pytest.mark.parametrize(
    ("importer", "imported"),
    [
        ("kcl_mld.leases.model.lease", "kcl_mld.leases.rules.taking"),
        ("kcl_mld.leases.rules.taking", "kcl_mld.kernel.ports"),
        ("kcl_mld.leases.rules.taking", "kcl_mld.leases.lease_taker"),
        ("kcl_mld.leases.lease_taker", "kcl_mld.aws.clients"),
        ("kcl_mld.children.record_processor", "kcl_mld.children.adapters.pipes"),
    ],
)
def test_a_part_that_imports_what_lies_above_is_seen(importer, imported):
    assert wrong_parts({(importer, imported)}) == [f"{importer} -> {imported}"]


# --- the rooms by domain


def test_no_import_runs_upward_between_rooms():
    found = rooms.upward(rooms.imports(rooms.modules()))
    assert not found, "\n".join(f"{one} -> {other}" for one, other in found)


def test_an_import_upward_is_seen():
    planted = ("kcl_mld.leases.model.lease", "kcl_mld.app.scheduler")
    edges = {planted, ("kcl_mld.app.scheduler", "kcl_mld.leases.model.lease")}
    assert rooms.upward(edges) == [planted]


def test_a_module_without_a_room_is_refused():
    with pytest.raises(KeyError):
        rooms.room_of("kcl_mld.new_idea.module")
