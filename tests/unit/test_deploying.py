"""The unit for systemd and the task definition for ECS: valid, and what they say twice is the same."""

import copy
import json
import re
import shutil
import subprocess

import botocore.session
import pytest
from botocore.validate import ParamValidator

from tests.markdown_pages import ROOT, page

UNIT = ROOT / "packaging" / "systemd" / "kcl-mld@.service"
TASK = ROOT / "packaging" / "ecs" / "task-definition.json"
#: The default of ``shutdownGraceMillis``, and what a stop may take beyond it.
STOP_S = 20 + 10
#: The longest ``stopTimeout`` of ECS.
LONGEST_STOP_S = 120
ANALYZE = shutil.which("systemd-analyze")
needs_systemd = pytest.mark.skipif(ANALYZE is None, reason="there is no systemd-analyze")


# -- systemd --------------------------------------------------------------------------------------


def settings():
    """Key -> value of the unit; no key is there twice."""
    lines = re.findall(r"(?m)^(\w+)=(.*)$", UNIT.read_text("utf-8"))
    assert len(dict(lines)) == len(lines)
    return dict(lines)


def complaints(text, folder):
    """What systemd says of a unit with this text, whose program is there."""
    program = folder / "kcl-mld"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = folder / "kcl-mld@orders.service"
    unit.write_text(text.replace("/opt/kcl-mld/bin/kcl-mld", str(program)))
    done = subprocess.run(
        [ANALYZE, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
    )
    # It reads the units of the machine, too.
    return [line for line in done.stderr.splitlines() if unit.name in line]


@needs_systemd
def test_systemd_accepts_the_unit(tmp_path):
    assert complaints(UNIT.read_text("utf-8"), tmp_path) == []


@needs_systemd
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("KillMode=mixed", "KillMode=main"),
        ("WatchdogSec=", "WatchdogSeconds="),
        ("RestartPreventExitStatus=2 5", "RestartPreventExitStatus=2 a"),
        ("ExecStart=/opt", "ExecStart=/optional"),
    ],
)
def test_a_fault_in_the_unit_is_seen(old, new, tmp_path):
    text = UNIT.read_text("utf-8")
    assert old in text
    assert complaints(text.replace(old, new), tmp_path)


def test_the_unit_stops_and_restarts_as_the_page_on_supervision_says():
    unit = settings()
    assert int(unit["TimeoutStopSec"]) == STOP_S
    assert (unit["KillMode"], unit["Type"], unit["Restart"]) == ("mixed", "notify", "on-failure")
    rules = re.search(
        r"Restart on failure, except on exit codes (\d) and (\d)",
        (ROOT / "docs/supervising.md").read_text("utf-8"),
    )
    assert unit["RestartPreventExitStatus"].split() == list(rules.groups())


# -- ECS ------------------------------------------------------------------------------------------


def task():
    return json.loads(TASK.read_text("utf-8"))


def shape():
    """Of the request that registers a task definition."""
    service = botocore.session.get_session().get_service_model("ecs")
    return service.operation_model("RegisterTaskDefinition").input_shape


def not_in_enum(value, shape):
    """Texts for which the model lists what they may be; botocore does not check them."""
    match shape.type_name:
        case "structure":
            pairs = [(value[name], shape.members[name]) for name in value]
        case "list":
            pairs = [(one, shape.member) for one in value]
        case "map":
            pairs = [(one, shape.value) for one in value.values()]
        case _:
            allowed = getattr(shape, "enum", None)
            return [value] if allowed and value not in allowed else []
    return [fault for one, of in pairs for fault in not_in_enum(one, of)]


def faults(value):
    """What the model of ECS says of a task definition; empty = it is valid."""
    report = ParamValidator().validate(value, shape())
    return report.generate_report() or "".join(not_in_enum(value, shape()))


def test_the_model_of_ecs_accepts_the_task_definition():
    assert faults(task()) == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [("stopTimeout", "30"), ("stopTimout", 30), ("logConfiguration", {"logDriver": "cloudwatch"})],
)
def test_a_fault_in_the_task_definition_is_seen(key, value):
    changed = copy.deepcopy(task())
    changed["containerDefinitions"][0][key] = value
    assert faults(changed)


def test_a_task_has_the_time_that_its_worker_takes_to_stop():
    (container,) = task()["containerDefinitions"]
    assert STOP_S <= container["stopTimeout"] <= LONGEST_STOP_S
    variables = {one["name"]: one["value"] for one in container["environment"]}
    assert container["healthCheck"]["command"] == ["CMD", "kcl-mld", "probe"]
    assert variables["KCL_MLD_HTTP"] == "127.0.0.1:8080"
    assert "KCL_MLD_HTTP" in page("docs/deploying.md").inline_code
